import { describe, expect, it } from "vitest";
import { connection, KINDS, NODES } from "../testing/samples";
import {
  capturesOf,
  fieldsOf,
  isEmbedded,
  kindLabel,
  kindsFor,
  listsOf,
  NAME_PATTERN,
  nodesOf,
  placeOf,
  rolesOf,
  valuesIn,
  wholesOf,
} from "./kinds";

describe("kinds of connections", () => {
  it("offers the kinds that can be used in a role", () => {
    expect(kindsFor(KINDS, "source").map(({ kind }) => kind)).toEqual(["postgres"]);
    expect(kindsFor(KINDS, "target").map(({ kind }) => kind)).toEqual(["duckdb", "postgres"]);
  });

  it("offers what the engine keeps itself as a target first, and as a source last", () => {
    const kinds = KINDS.map((kind) => ({ ...kind, source: true }));
    expect(kindsFor(kinds, "source").map(({ kind }) => kind)).toEqual(["postgres", "duckdb"]);
    expect(kindsFor(kinds, "target").map(({ kind }) => kind)).toEqual(["duckdb", "postgres"]);
    expect(rolesOf(kinds, connection({ kind: "duckdb" }))).toEqual(["target", "source"]);
  });

  it("offers sources in the order of the server", () => {
    expect(kindsFor([...KINDS, NODES], "source").map(({ kind }) => kind)).toEqual(["postgres", "partitioned"]);
    expect(kindsFor([NODES, ...KINDS], "target").map(({ kind }) => kind)).toEqual(["duckdb", "postgres"]);
  });

  it.each([
    ["postgres", ["source", "target"], false, ["postgres_log"]],
    ["duckdb", ["target"], true, []],
    ["oracle", [], false, []],
  ])("a connection of kind %s can be used as %j", (kind, roles, embedded, captures) => {
    expect(rolesOf(KINDS, connection({ kind }))).toEqual(roles);
    expect(isEmbedded(KINDS, connection({ kind }))).toBe(embedded);
    expect(capturesOf(KINDS, connection({ kind })).map((each) => each.kind)).toEqual(captures);
  });

  it("names unknown kinds as the server does", () => {
    expect(kindLabel(KINDS, "postgres")).toBe("PostgreSQL");
    expect(kindLabel(KINDS, "oracle")).toBe("oracle");
  });
});

describe("settings of a kind", () => {
  const schema = {
    type: "object",
    properties: {
      host: { type: "string", title: "Host", description: "Where it runs." },
      port: { type: "integer", title: "Port", default: 5432 },
      user: { type: "string", title: "User" },
      mode: { enum: ["a", "b"], type: "string", title: "Mode", default: "a" },
      most: { anyOf: [{ type: "number" }, { type: "null" }], title: "At most", default: null },
      kind: { const: "paper", type: "string" },
      guard: { $ref: "#/$defs/Guard" },
    },
    required: ["host", "user"],
  };
  const fields = fieldsOf(schema);

  it("are asked for as its schema says, those after the last required one on request", () => {
    expect(fields.map(({ name, label, seldom }) => [name, label, seldom])).toEqual([
      ["host", "Host", false],
      ["port", "Port", false],
      ["user", "User", false],
      ["mode", "Mode", true],
      ["most", "At most", true],
    ]);
    expect(fields[0]).toMatchObject({ hint: "Where it runs.", required: true, initial: "", number: false });
    expect(fields[1]).toMatchObject({ required: false, initial: "5432", number: true });
    expect(fields[3]).toMatchObject({ choices: ["a", "b"], initial: "a" });
    expect(fields[4]).toMatchObject({ initial: "", number: true });
  });

  it("are left out where nothing is typed", () => {
    expect(valuesIn(fields, { host: " db ", user: "", most: "2.5" })).toEqual({ host: "db", port: 5432, mode: "a", most: 2.5 });
    expect(valuesIn(fields, { port: "" })).toEqual({ mode: "a" });
  });

  it("are none where there is no schema", () => expect(fieldsOf({})).toEqual([]));
});

describe("lists in the settings of a kind", () => {
  it("have the fields of their entries, with their limits", () => {
    const [nodes, ...others] = listsOf(NODES.settings);
    expect(others).toEqual([]);
    expect(nodes).toMatchObject({ name: "nodes", label: "Nodes", hint: "The order counts.", least: 2, most: 3 });
    expect(nodes?.fields.map(({ name, required, connectionKind }) => [name, required, connectionKind])).toEqual([
      ["name", true, undefined],
      ["connection", true, "postgres"],
    ]);
  });

  it("are no fields, and other lists are left out", () => {
    expect(fieldsOf(NODES.settings)).toEqual([]);
    expect(listsOf({ properties: { hours: { type: "array", items: { type: "string" } }, host: { type: "string" } } })).toEqual([]);
    expect(listsOf({})).toEqual([]);
  });
});

describe("nodes", () => {
  const nodes = [
    { name: "n1", connection: "shop-1" },
    { name: "n2", connection: "shop-2" },
  ];
  const whole = connection({ name: "shops", kind: "partitioned", settings: { nodes } });

  it("are known in their order, and so is what they belong to", () => {
    expect(nodesOf(whole)).toEqual(nodes);
    expect(nodesOf(connection())).toEqual([]);
    expect(wholesOf([connection(), whole], "shop-2")).toEqual([whole]);
    expect(wholesOf([connection(), whole], "shop-3")).toEqual([]);
  });

  it("are the place of their connection", () => expect(placeOf(whole)).toBe("n1: shop-1, n2: shop-2"));
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
