import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import type { ConnectionKind } from "../../api/client";
import { keys } from "../../api/queries";
import { As } from "../../testing/caller";
import { connection, KINDS, sourceTable } from "../../testing/samples";
import { DEFAULTS, type Draft, keyOf } from "./draft";
import { AtSource } from "./summaryStep";

const LEDGER = {
  kind: "ledger",
  title: "Ledger",
  description: "A ledger is written on the source.",
  by_triggers: true,
  table_options: [],
  settings: {},
};
const orders = sourceTable();

function open(capture: string): void {
  const kinds: ConnectionKind[] = KINDS.map((kind) => ({ ...kind, captures: kind.source ? [...kind.captures, LEDGER] : [] }));
  const draft: Draft = {
    name: "copy",
    source: "shop",
    target: "mart",
    tables: new Set([keyOf(orders)]),
    insertOnly: new Set(),
    patterns: [],
    detections: {},
    options: { ...DEFAULTS, capture },
  };
  render(
    <As role="operator" known={[[keys.connectionKinds, kinds]]}>
      <AtSource draft={draft} source={connection()} found={[orders]} />
    </As>,
  );
}

describe("the summary of a new subscription", () => {
  it.each([
    ["", "Its log is read."],
    ["postgres_log", "Its log is read."],
    ["ledger", "A ledger is written on the source."],
  ])("describes the source's side as capture “%s” does", (capture, words) => {
    open(capture);
    const [first, second] = screen.getAllByRole("listitem");
    expect(first?.textContent).toBe(`${words} Tables and rows of PostgreSQL at penstock@db:5432/shop are not changed.`);
    expect(second?.textContent).toMatch(/^1 table is read once, about .* from then on only changes are read\.$/);
  });
});
