import { describe, expect, it } from "vitest";
import { identifier, relation } from "./identifiers";

describe("identifier", () => {
  it.each([
    ["orders", "orders"],
    ["_a1", "_a1"],
    ["order", '"order"'],
    ["Orders", '"Orders"'],
    ["1st", '"1st"'],
    ['a."b"', '"a.""b"""'],
    ["größe", '"größe"'],
    ["", '""'],
  ])("writes %s as %s", (name, written) => expect(identifier(name)).toBe(written));
});

it("a relation has both parts", () => expect(relation({ schema: "public", name: "user" })).toBe('public."user"'));
