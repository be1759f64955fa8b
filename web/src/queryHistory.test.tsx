import { beforeEach, describe, expect, it } from "vitest";
import { forgetAllQueries, forgetQueries, type PastQuery, queriesOf, queryHistory, rememberQuery } from "./queryHistory";

const past = (sql: string, changes: Partial<PastQuery> = {}): PastQuery => ({
  caller: "ann",
  subscription: "shop",
  sql,
  freshness: { mode: "any" },
  at: "2026-05-04T10:00:00Z",
  ended: "3 rows",
  ...changes,
});
const shown = (caller = "ann", subscription = "shop"): string[] =>
  queriesOf(queryHistory.get(), caller, subscription).map(({ sql }) => sql);
const kept = (): string => localStorage.getItem("penstock-queries") ?? "";
const writtenElsewhere = (text: string): void => {
  localStorage.setItem("penstock-queries", text);
  dispatchEvent(new StorageEvent("storage", { key: "penstock-queries" }));
};

beforeEach(forgetAllQueries);

describe("the history of queries", () => {
  it("has the newest first, and none twice", () => {
    for (const sql of ["a", "b", "a"]) rememberQuery(past(sql));
    expect(shown()).toEqual(["a", "b"]);
    expect(JSON.parse(kept())).toHaveLength(2);
  });

  it("is of one caller and one subscription", () => {
    rememberQuery(past("mine"));
    rememberQuery(past("yours", { caller: "bob" }));
    rememberQuery(past("elsewhere", { subscription: "other" }));
    expect([shown(), shown("bob"), shown("ann", "other")]).toEqual([["mine"], ["yours"], ["elsewhere"]]);
    forgetQueries("ann", "shop");
    expect([shown(), shown("bob"), shown("ann", "other")]).toEqual([[], ["yours"], ["elsewhere"]]);
    forgetAllQueries();
    expect(localStorage.getItem("penstock-queries")).toBeNull();
  });

  it("is bounded for each subscription, and in its size", () => {
    rememberQuery(past("kept", { subscription: "other" }));
    for (let number = 0; number < 60; number += 1) rememberQuery(past(`SELECT ${number}`));
    expect(shown()).toHaveLength(50);
    expect(shown()[0]).toBe("SELECT 59");
    expect(shown("ann", "other")).toEqual(["kept"]);
    rememberQuery(past("x".repeat(400_000)));
    rememberQuery(past("y".repeat(400_000)));
    expect(shown().filter((sql) => sql.length > 100)).toEqual(["y".repeat(400_000)]);
    expect(kept().length).toBeLessThan(600_000);
  });

  it("follows what another tab writes, and survives what is no history", () => {
    writtenElsewhere(JSON.stringify([past("there"), { sql: "half" }, 7, null]));
    expect(shown()).toEqual(["there"]);
    writtenElsewhere("{");
    expect(shown()).toEqual([]);
    rememberQuery(past("again"));
    expect(shown()).toEqual(["again"]);
  });
});
