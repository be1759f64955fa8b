import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { ConnectionKind } from "../../api/client";
import { keys } from "../../api/queries";
import { As } from "../../testing/caller";
import { connection, KINDS, QUERIES, sourceTable } from "../../testing/samples";
import { DEFAULTS, type Draft, keyOf } from "./draft";
import { OptionsStep } from "./optionsStep";
import { sourceTablesQuery } from "./queries";
import { TablesStep } from "./tablesStep";

const kinds: ConnectionKind[] = KINDS.map((kind) => (kind.source ? { ...kind, captures: [...kind.captures, QUERIES] } : kind));
const orders = sourceTable({ columns: [{ name: "id", type: "bigint" }] });
const TOTALS = sourceTable({
  name: "totals",
  key: [],
  columns: [
    { name: "day", type: "date" },
    { name: "shop", type: "text" },
  ],
  problems: [
    { code: "view", severity: "info", what: "It is a view.", remedy: "" },
    { code: "table_no_identity", severity: "warning", what: "It has no key.", remedy: "" },
  ],
});

const draft = (changes: Partial<Draft> = {}): Draft => ({
  name: "copy",
  source: "shop",
  target: "mart",
  tables: new Set(),
  insertOnly: new Set(),
  patterns: [],
  detections: {},
  options: DEFAULTS,
  ...changes,
});

type Step = "tables" | "options";

function Steps({ step, begun, next }: { step: Step; begun: Draft; next: () => void }) {
  const [now, set] = useState(begun);
  const props = {
    draft: now,
    onChange: (changes: Partial<Draft>) => set((before) => ({ ...before, ...changes })),
    onNext: next,
    source: connection(),
  };
  return (
    <>
      {step === "tables" ? <TablesStep {...props} all={false} /> : <OptionsStep {...props} />}
      <output>{JSON.stringify({ chosen: [...now.tables], detections: now.detections, capture: now.options.capture })}</output>
    </>
  );
}

function open(step: Step, begun: Draft): () => void {
  const next = vi.fn();
  render(
    <As
      role="operator"
      known={[
        [keys.connectionKinds, kinds],
        [sourceTablesQuery("shop").queryKey, [orders]],
        [sourceTablesQuery("shop", "postgres_log").queryKey, [orders]],
        [sourceTablesQuery("shop", "query_diff").queryKey, [orders, TOTALS]],
      ]}
    >
      <Steps step={step} begun={begun} next={next} />
    </As>,
  );
  return next;
}

const held = (): { chosen: string[]; detections: object; capture: string } =>
  JSON.parse(document.querySelector("output")?.textContent ?? "") as ReturnType<typeof held>;

afterEach(() => vi.restoreAllMocks());

describe("the tables of a new subscription", () => {
  it("are those that the chosen capture can follow: views by queries only", async () => {
    open("tables", draft());
    expect(screen.queryByRole("checkbox", { name: "public.totals" })).toBeNull();
    await userEvent.click(screen.getByRole("radio", { name: /^Queries/ }));
    expect(screen.getByRole("row", { name: /public.totals/ }).textContent).toContain("view");
    await userEvent.click(screen.getByRole("button", { name: "Choose all" }));
    expect(held()).toMatchObject({ chosen: [keyOf(orders)], capture: "query_diff" });
    expect(screen.getByText(/1 table or view without a key is not chosen/)).toBeTruthy();
    await userEvent.click(screen.getByRole("checkbox", { name: "public.totals" }));
    expect(held().chosen).toEqual([keyOf(orders), keyOf(TOTALS)]);
    await userEvent.click(screen.getByRole("radio", { name: /^Source's log/ }));
    expect(held().chosen).toEqual([keyOf(orders)]);
  });

  it("are read from the source with the capture", async () => {
    const sent = vi.spyOn(globalThis, "fetch").mockImplementation(async () => Response.json({ items: [], next_page_token: null }));
    render(
      <As role="operator" known={[[keys.connectionKinds, kinds]]}>
        <Steps step="tables" begun={draft({ options: { ...DEFAULTS, capture: "query_diff" } })} next={vi.fn()} />
      </As>,
    );
    await waitFor(() => expect(sent).toHaveBeenCalled());
    expect(sent.mock.calls.map(([input]) => new URL((input as Request).url).searchParams.get("capture"))).toEqual(["query_diff"]);
  });
});

describe("single tables of a capture by queries", () => {
  const byQueries = draft({
    tables: new Set([keyOf(orders), keyOf(TOTALS)]),
    options: { ...DEFAULTS, capture: "query_diff" },
  });
  const entry = (name: string) => within(screen.getByRole("group", { name: new RegExp(`^public.${name}`) }));
  const next = () => userEvent.click(screen.getByRole("button", { name: "Next: check" }));

  it("are asked for the key of a view, and sent as capture.tables", async () => {
    const bodies: { capture?: { tables?: unknown } }[] = [];
    vi.spyOn(globalThis, "fetch").mockImplementation(async (input) => {
      bodies.push((await (input as Request).clone().json()) as (typeof bodies)[number]);
      return Response.json({});
    });
    const left = open("options", byQueries);
    expect(screen.queryByRole("group", { name: /^public.orders/ })).toBeNull();
    await userEvent.click(entry("totals").getByRole("checkbox", { name: "shop text" }));
    await userEvent.click(entry("totals").getByRole("checkbox", { name: "day date" }));
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Another table" }), "public.orders");
    await userEvent.selectOptions(entry("orders").getByRole("combobox", { name: "How its changes are found" }), "timestamp");
    await userEvent.selectOptions(entry("orders").getByRole("combobox", { name: "Stamp column" }), "id");
    await next();
    await waitFor(() => expect(left).toHaveBeenCalledOnce());
    expect(bodies.map(({ capture }) => capture?.tables)).toEqual([
      { "public.totals": { key: ["shop", "day"] }, "public.orders": { method: "timestamp", stamp_column: "id" } },
    ]);
    await userEvent.click(entry("orders").getByRole("button", { name: "Read public.orders like the others" }));
    expect(Object.keys(held().detections)).toEqual([keyOf(TOTALS)]);
  });

  it("show what the server refuses at the field, until it is changed", async () => {
    const errors = [
      { pointer: "/capture/tables/public.totals/key", detail: "names a column twice" },
      { pointer: "/capture/every_seconds", detail: "at least 1" },
    ];
    vi.spyOn(globalThis, "fetch").mockImplementation(async () => Response.json({ title: "Invalid request", errors }, { status: 422 }));
    const left = open("options", byQueries);
    await next();
    expect(await entry("totals").findByText("Names a column twice")).toBeTruthy();
    expect(screen.getByRole("textbox", { name: "Cycle every", description: "At least 1" })).toBeTruthy();
    expect(left).not.toHaveBeenCalled();
    await userEvent.click(entry("totals").getByRole("checkbox", { name: "day date" }));
    expect(screen.queryByText("Names a column twice")).toBeNull();
  });

  it("leave to the check what the server says of other parts", async () => {
    const errors = [{ pointer: "/tables/0", detail: "it is taken" }];
    vi.spyOn(globalThis, "fetch").mockImplementation(async () => Response.json({ title: "Invalid request", errors }, { status: 422 }));
    const left = open("options", byQueries);
    await next();
    await waitFor(() => expect(left).toHaveBeenCalledOnce());
  });
});
