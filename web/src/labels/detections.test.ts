import { describe, expect, it } from "vitest";
import type { Subscription } from "../api/client";
import { detectionFacts, detectionOf } from "./detections";

const capture = { kind: "query_diff", tables: { "public.totals": { key: ["a", "b"] } } } as unknown as Subscription["capture"];

describe("how the changes of a table are found", () => {
  it("is said of the tables that the capture names", () => {
    expect(detectionOf(capture, { schema: "public", name: "totals" })).toEqual({ key: ["a", "b"] });
    expect(detectionOf(capture, { schema: "other", name: "totals" })).toBeUndefined();
    expect(detectionOf({ kind: "triggers" } as Subscription["capture"], { schema: "public", name: "totals" })).toBeUndefined();
  });

  it("is shown by what is declared", () => {
    expect(detectionFacts({ key: ["a"], method: null, stamp_column: null, sweep_every: 12, columns: {} })).toEqual([]);
    const stamped = { method: "timestamp_delete_flag", stamp_column: "at", flag_column: "gone", sweep_every: 5 };
    expect(detectionFacts(stamped).map(([, value]) => value)).toEqual(["timestamp_delete_flag", "at", "gone", "5"]);
    const below = { "public.orders": { stamp_column: "at", columns: { id: "id" } } };
    expect(detectionFacts({ stamps_below: below, sweep_every: 5 }).map(([, value]) => value)).toEqual(["public.orders.at", "5"]);
    expect(detectionFacts({ columns: { id: "bigint", at: "timestamp" } })).toEqual([["Types of its columns", "id: bigint, at: timestamp"]]);
  });
});
