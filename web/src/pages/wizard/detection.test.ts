import { describe, expect, it } from "vitest";
import { QUERIES, sourceTable } from "../../testing/samples";
import { detectionKind, detectionOf, draftOf, isView, lacksKey, NO_DETECTION } from "./detection";

const finding = (code: string, severity: "error" | "warning" | "info" = "warning") => ({ code, severity, what: "", remedy: "" });

describe("what can be entered for single tables", () => {
  it("follows from the capture", () => {
    const kind = detectionKind(QUERIES);
    expect([kind?.key, kind?.types]).toEqual([true, false]);
    expect(kind?.methods).toEqual(["incremental", "row_checksum", "timestamp", "timestamp_delete_flag"]);
    expect(kind?.hints.key).toBe("Columns that identify a row.");
  });

  it("has no flag where the source cannot have one, and no method where there is only one", () => {
    expect(detectionKind({ ...QUERIES, table_options: [] })?.methods).toEqual(["incremental", "row_checksum", "timestamp"]);
    const settings = { ...QUERIES.settings, properties: { tables: {}, method: { const: "incremental" } } };
    const files = detectionKind({ ...QUERIES, settings, table_options: ["columns", "key"] });
    expect([files?.key, files?.types, files?.methods]).toEqual([true, true, []]);
  });

  it("has methods by stamps in addition to the only one where rows can have a flag", () => {
    const settings = { ...QUERIES.settings, properties: { tables: {}, method: { const: "incremental" } } };
    const sqlite = detectionKind({ ...QUERIES, settings, table_options: ["flag_column"] });
    expect([sqlite?.key, sqlite?.methods]).toEqual([false, ["timestamp", "timestamp_delete_flag"]]);
  });

  it("is nothing with a capture that reads all tables alike", () => {
    expect(detectionKind(undefined)).toBeNull();
    expect(detectionKind({ ...QUERIES, settings: { properties: {} } })).toBeNull();
  });
});

describe("an entry of capture.tables", () => {
  it("leaves out what is empty", () => {
    expect(detectionOf(NO_DETECTION)).toBeUndefined();
    expect(detectionOf({ ...NO_DETECTION, key: ["b", "a"], types: { a: " bigint ", b: " " } })).toEqual({
      key: ["b", "a"],
      columns: { a: "bigint" },
    });
  });

  it("has stamp and flag only with the methods that read them", () => {
    const entered = { ...NO_DETECTION, stampColumn: "at", flagColumn: "gone", sweepEvery: "5" };
    expect(detectionOf({ ...entered, method: "row_checksum" })).toEqual({ method: "row_checksum" });
    expect(detectionOf({ ...entered, method: "timestamp" })).toEqual({ method: "timestamp", stamp_column: "at", sweep_every: 5 });
    expect(detectionOf({ ...entered, method: "timestamp_delete_flag" })).toMatchObject({ stamp_column: "at", flag_column: "gone" });
  });

  it("keeps stamps below a view while the method is timestamp", () => {
    const stamps_below = { "public.orders": { stamp_column: "at", columns: { id: "id" } } };
    const declared = { key: ["id"], method: "timestamp", sweep_every: 5, stamps_below };
    expect(detectionOf(draftOf(declared))).toEqual(declared);
    expect(detectionOf({ ...draftOf(declared), method: "row_checksum" })).toEqual({ key: ["id"], method: "row_checksum" });
    expect(detectionOf({ ...draftOf(declared), stampColumn: "at" })).not.toHaveProperty("stamps_below");
  });
});

describe("tables and views", () => {
  it.each([
    [sourceTable(), false, false],
    [sourceTable({ key: [], problems: [finding("table_no_identity", "error")] }), true, false],
    [sourceTable({ key: [], problems: [finding("view", "info"), finding("table_no_identity")] }), true, true],
    [sourceTable({ key: ["id"], problems: [finding("view", "info")] }), false, true],
  ])("%#: lack a key, are views", (table, keyless, view) => {
    expect([lacksKey(table), isView(table)]).toEqual([keyless, view]);
  });
});
