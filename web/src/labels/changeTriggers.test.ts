import { describe, expect, it } from "vitest";
import { asScript, variantWords } from "./changeTriggers";

describe("the script of a plan", () => {
  it("says locks and costs where they differ from those before", () => {
    const held = { lock: "held", cost: "little" };
    expect(
      asScript([
        { sql: "BEGIN", lock: "waits", cost: "little" },
        { sql: "CREATE a", ...held },
        { sql: "CREATE b", ...held },
        { sql: "COMMIT", lock: "held", cost: "a write" },
      ]),
    ).toEqual(["-- locks: waits\n-- cost: little\nBEGIN", "-- locks: held\nCREATE a", "CREATE b", "-- cost: a write\nCOMMIT"]);
  });
});

describe("variantWords", () => {
  it("leaves what a newer server says", () => expect(variantWords("changed columns")).toBe("changed columns"));
  it("has words for the others", () => expect(variantWords("rows")).toBe("whole rows"));
});
