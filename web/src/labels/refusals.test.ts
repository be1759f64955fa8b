import { describe, expect, it } from "vitest";
import { Problem } from "../api/problem";
import { inPlainWords } from "./refusals";

const problem = (code: string, body: Record<string, unknown> = {}, remedy = "As the server says.", status = 422): Problem =>
  new Problem({ status, code, title: "Refused", detail: "it was not done", remedy, body });

describe("inPlainWords", () => {
  it("writes the detail as a sentence", () => expect(inPlainWords(problem("other")).detail).toBe("It was not done."));

  it("leaves a detail that ends already", () => {
    expect(inPlainWords(new Problem({ ...problem("other"), detail: "Why not?" })).detail).toBe("Why not?");
  });

  it.each([
    ["query_not_a_read", "The query was refused"],
    ["query_timeout", "The query took too long"],
    ["table_not_live", "A table of the query is not live"],
    ["other", "Refused"],
  ])("titles %s with “%s”", (code, title) => expect(inPlainWords(problem(code)).title).toBe(title));

  it("estimates when a wait that ran out would have ended", () => {
    const found = inPlainWords(problem("freshness_timeout", { estimate_ms: 2500 }));
    expect(found.remedy).toMatch(/^At the current rate it will be reached in about 2\.50 s\. Try again with more time/);
  });

  it("gives no estimate where the server has none", () => {
    expect(inPlainWords(problem("freshness_timeout", { estimate_ms: null })).remedy).toMatch(/^Try again with more time/);
  });

  it.each([{ beyond_source: true }, { cause: "paused" }])("keeps the server's remedy for a timeout with %j", (body) => {
    expect(inPlainWords(problem("freshness_timeout", body)).remedy).toBe("As the server says.");
  });

  it("says that waiting longer does not help for what cannot be reached", () => {
    expect(inPlainWords(problem("freshness_unreachable")).remedy).toBe("As the server says. Waiting longer does not help.");
  });

  it.each([502, 503, 504])("takes a %d without a remedy for an answer of a proxy", (status) => {
    expect(inPlainWords(problem("http", {}, "", status)).remedy).toMatch(/between this browser and the server timed out/);
  });

  it.each([
    ["a proxy's status with a remedy", problem("x", {}, "Do this.", 503), "Do this."],
    ["another status", problem("x", {}, "", 500), ""],
  ])("has nothing to add to %s", (_case, given, remedy) => expect(inPlainWords(given).remedy).toBe(remedy));

  it("keeps the status, the code and the body", () => {
    expect(inPlainWords(problem("query_timeout", { limit: 5 }))).toMatchObject({ status: 422, code: "query_timeout", body: { limit: 5 } });
  });

  it("takes whatever was thrown", () => expect(inPlainWords(new Error("broken")).code).toBe("console_error"));
});
