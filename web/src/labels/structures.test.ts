import { describe, expect, it } from "vitest";
import type { Version, VersionColumn } from "../api/client";
import { NOW } from "../testing/samples";
import { differences } from "./structures";

const column = (name: string, type = "integer", nullable = true): VersionColumn => ({ name, type, nullable });
const version = (columns: VersionColumn[] | null, changes: string[] | null = null): Version => ({
  at: NOW,
  change: "structure",
  columns,
  changes,
});

describe("differences", () => {
  it("repeats the changes that the server names", () => {
    expect(differences(version([column("a")], ["column a was added"]), version([]))).toEqual(["column a was added"]);
  });

  it.each([
    ["a new column", [column("a"), column("b")], ["column b is new"]],
    ["a column that is gone", [], ["column a is gone"]],
    ["another type", [column("a", "bigint")], ["column a is now bigint, was integer"]],
    ["a new constraint", [column("a", "integer", false)], ["column a takes no nulls now"]],
    ["nothing", [column("a")], []],
  ])("finds %s", (_case, columns, found) => expect(differences(version(columns), version([column("a")]))).toEqual(found));

  it("finds a constraint that is gone", () => {
    expect(differences(version([column("a")]), version([column("a", "integer", false)]))).toEqual(["column a takes nulls now"]);
  });

  it.each([
    ["the first version", version([column("a")]), undefined],
    ["a version after one without columns", version([column("a")]), version(null)],
    ["a version without columns", version(null), version([column("a")])],
  ])("does not know the changes of %s", (_case, present, before) => expect(differences(present, before)).toBeNull());

  it("knows that the first version has none, where the server says so", () => expect(differences(version([], []), undefined)).toEqual([]));
});
