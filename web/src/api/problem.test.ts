import { describe, expect, it } from "vitest";
import { Problem } from "./problem";

const answered = (status: number): Response => new Response(null, { status });

describe("Problem.of", () => {
  it("takes over what a problem document says", () => {
    const body = {
      code: "name_taken",
      title: "The name is taken",
      detail: "There is a subscription of this name.",
      remedy: "Choose another one.",
      trace_id: "abc",
      findings: [{ code: "x", what: "y", remedy: "", severity: "error" }],
      limit: 5,
    };
    expect(Problem.of(answered(409), body)).toMatchObject({
      status: 409,
      code: "name_taken",
      title: "The name is taken",
      detail: "There is a subscription of this name.",
      remedy: "Choose another one.",
      traceId: "abc",
      findings: body.findings,
      body,
    });
  });

  it.each([undefined, null, "<html>", 5, []])("has words for an answer with the body %j", (body) => {
    expect(Problem.of(answered(502), body)).toMatchObject({
      code: "http_502",
      title: "The server refused this",
      detail: "It answered with status 502.",
      remedy: "",
      traceId: undefined,
      findings: [],
    });
  });

  it("ignores members of another type", () => {
    expect(Problem.of(answered(400), { title: 5, findings: "none", trace_id: "" })).toMatchObject({
      title: "The server refused this",
      findings: [],
      traceId: undefined,
    });
  });
});

describe("Problem.from", () => {
  it("leaves problems as they are", () => {
    const problem = Problem.unreachable();
    expect(Problem.from(problem)).toBe(problem);
  });

  it("keeps the message of an error", () => expect(Problem.from(new TypeError("x is not a function")).detail).toBe("x is not a function"));

  it("has words for whatever else is thrown", () => {
    expect(Problem.from("x")).toMatchObject({ status: 0, code: "console_error", detail: "Something unexpected happened." });
  });
});

it("a problem is an error with a message", () => {
  expect(Problem.unreachable()).toBeInstanceOf(Error);
  expect(Problem.unreachable().message).toBe("The server does not answer: The request did not get through.");
});
