import { describe, expect, it } from "vitest";
import { connection } from "../testing/samples";
import { KINDS, kindLabel, kindsFor, NAME_PATTERN, placeOf, rolesOf } from "./kinds";

describe("kinds of connections", () => {
  it("offers the kinds that can be used in a role", () => {
    expect(kindsFor("source")).toEqual(["postgres"]);
    expect(kindsFor("target")).toEqual(["duckdb", "postgres"]);
  });

  it.each([
    ["postgres", ["source", "target"]],
    ["duckdb", ["target"]],
    ["oracle", []],
  ])("a connection of kind %s can be used as %j", (kind, roles) => expect(rolesOf(connection({ kind }))).toEqual(roles));

  it("names unknown kinds as the server does", () => {
    expect(kindLabel("postgres")).toBe("PostgreSQL");
    expect(kindLabel("oracle")).toBe("oracle");
  });

  it("names the settings of a kind once each", () => {
    for (const { fields } of Object.values(KINDS)) expect(new Set(fields.map(({ name }) => name)).size).toBe(fields.length);
  });
});

describe("placeOf", () => {
  it.each([
    [{ path: "/data/mart.duckdb" }, "/data/mart.duckdb"],
    [{ host: "db", port: 5432, database: "shop", user: "penstock" }, "penstock@db:5432/shop"],
    [{ host: "db" }, "db"],
    [{ host: "db", database: "shop" }, "db/shop"],
    [{ bucket: "b", region: "r" }, "b r"],
  ] as Record<string, string | number>[][] & [Record<string, string | number>, string][])("of %j is %s", (settings, place) => {
    expect(placeOf({ settings })).toBe(place);
  });
});

describe("names", () => {
  const pattern = new RegExp(`^${NAME_PATTERN}$`);
  it.each(["a", "Orders-2", "9.lives_", "x".repeat(63)])("takes %s", (name) => expect(pattern.test(name)).toBe(true));
  it.each(["", "-a", "_a", "a b", "ä", "x".repeat(64), "a/b"])("refuses “%s”", (name) => expect(pattern.test(name)).toBe(false));
});
