import { expect, it } from "vitest";
import { partitionReload } from "./partitions";

it("names the partitions that are reloaded", () => {
  const said = partitionReload("public.sales", ["public.sales_06"]);
  expect(said.title).toBe("Reload 1 partition of public.sales?");
  expect(said.does[0]).toContain("public.sales_06");
});

it("says that a comparison reads the whole table", () => {
  const said = partitionReload("public.sales", "changed");
  expect(said.title).toBe("Reload the differing partitions of public.sales?");
  expect(said.does[0]).toContain("reads the whole table once");
});
