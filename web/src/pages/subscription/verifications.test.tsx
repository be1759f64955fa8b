import { fireEvent, render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { As } from "../../testing/caller";
import { verification, verified } from "../../testing/samples";
import { Entry, ShareField } from "./verifications";

const show = (changes: Parameters<typeof verification>[0], role = "operator") =>
  render(
    <As role={role}>
      <Entry subscription="copy" verification={verification(changes)} />
    </As>,
  );

it("lists the rows that differ, and offers to reload their table", () => {
  const differing = [
    { key: ["7", null], kind: "missing" },
    { key: ["8", "b"], kind: "different", columns: ["price", "note"] },
  ];
  show({
    equal: false,
    tables: [
      verified({ equal: false, target_rows: 9, differing, set_aside: 2, method: "checksum", ranges: 40, ranges_different: 2 }),
      verified({ id: "t2", name: "lines", by_rows_because: "no key" }),
    ],
  });
  expect(screen.getByText("different")).toBeTruthy();
  expect(screen.getByText(/10 rows on the source, 9 on the target; 2 quarantined rows/)).toBeTruthy();
  expect(screen.getByText("Compared by checksum: 2 of 40 ranges differed")).toBeTruthy();
  expect(screen.getByText(/by rows, because of no key/)).toBeTruthy();
  expect(screen.getByText("2 rows that differ")).toBeTruthy();
  expect(screen.getByText("7, NULL").closest("tr")?.textContent).toContain("missing on the target");
  expect(screen.getByText("8, b").closest("tr")?.textContent).toContain("different values in price, note");
  expect(screen.getByRole("button", { name: "Reload public.orders" })).toBeTruthy();
  expect(screen.getByText("1 equal table")).toBeTruthy();
});

it("shows what a repair wrote, and what it left out", () => {
  const differing = [{ key: ["7"], kind: "missing" }];
  show({
    equal: false,
    repair: "apply",
    tables: [
      verified({ differing, repaired: { inserted: 1, updated: 2, deleted: 0 }, repaired_at: "0/2A" }),
      verified({ id: "t2", name: "bag", equal: false, not_repaired: "the table has no key; reload it" }),
      verified({ id: "t3", name: "lines", equal: false, would_repair: { inserted: 0, updated: 3, deleted: 1 } }),
    ],
  });
  expect(screen.getByText("Repaired at 0/2A: 1 row inserted, 2 updated, 0 deleted; the table is equal now.")).toBeTruthy();
  expect(screen.getByText("1 row that differed")).toBeTruthy();
  expect(screen.getByText("Not repaired: the table has no key; reload it.")).toBeTruthy();
  expect(screen.getByText("A repair would write: 0 rows inserted, 3 updated, 1 deleted.")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Reload public.orders" })).toBeNull();
  expect(screen.getByRole("button", { name: "Reload public.bag" })).toBeTruthy();
});

it("shows progress, and the way to cancel it", () => {
  show({ state: "running", equal: null, ended_at: null, position: null, tables_done: 1, tables_total: 4 });
  expect(screen.getByRole("progressbar", { name: "Tables compared" }).getAttribute("value")).toBe("1");
  expect(screen.getByText("1 of 4 tables compared")).toBeTruthy();
  expect(screen.getByRole("button", { name: "Cancel the verification of copy" })).toBeTruthy();
});

it("offers nothing to a viewer", () => {
  show({ equal: false, tables: [verified({ equal: false })] }, "viewer");
  expect(screen.queryAllByRole("button")).toEqual([]);
});

it("names the tables that were not compared, and why", () => {
  show({ equal: null, left_out: [{ id: "t3", schema: "public", name: "notes", state: "parked", reason: "A value does not fit." }] });
  expect(screen.getByText("nothing compared")).toBeTruthy();
  expect(screen.getByText("1 table not compared")).toBeTruthy();
  expect(screen.getByText(/parked, A value does not fit\./)).toBeTruthy();
});

it("says why it failed, and what to do", () => {
  show({ state: "failed", equal: null, problem: { detail: "The snapshot timed out.", remedy: "End the open transaction." } });
  expect(screen.getByText("The snapshot timed out.")).toBeTruthy();
  expect(screen.getByText("End the open transaction.")).toBeTruthy();
});

it("names the table of one that the schedule began", () => {
  show({ trigger: "schedule", tables: [verified()] });
  expect(screen.getByText(/compared by the schedule/).textContent).toContain("public.orders compared by the schedule at 0/16B3748");
});

it("takes a share in percent, and says what it means", () => {
  const typed: string[] = [];
  const field = (percents: string) => (
    <ShareField label="Share" percents={percents} part="Some rows." whole="All rows." onChange={(text) => typed.push(text)} />
  );
  const { rerender } = render(field("100"));
  expect(screen.getByText(/All rows/)).toBeTruthy();
  fireEvent.change(screen.getByRole("textbox", { name: "Share" }), { target: { value: "0.5" } });
  expect(typed).toEqual(["0.5"]);
  rerender(field("0.5"));
  expect(screen.getByText(/Some rows/)).toBeTruthy();
  for (const wrong of ["", "0", "101", "all"]) {
    rerender(field(wrong));
    expect(screen.getByRole("textbox").getAttribute("aria-invalid")).toBe("true");
  }
});
