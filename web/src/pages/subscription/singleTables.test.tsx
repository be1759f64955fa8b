import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Subscription } from "../../api/client";
import { keys } from "../../api/queries";
import { As } from "../../testing/caller";
import { connection, KINDS, QUERIES, sourceTable, subscription } from "../../testing/samples";
import { connectionQuery, sourceTablesQuery } from "../wizard/queries";
import { SingleTables } from "./singleTables";

const orders = sourceTable({ columns: [{ name: "id", type: "bigint" }] });
const lines = sourceTable({ name: "lines", columns: [{ name: "changed", type: "timestamp" }] });
const STAMPED = { "public.lines": { method: "timestamp", stamp_column: "changed", sweep_every: 6 } };
const byQueries = (tables: object): Subscription => subscription({ capture: { kind: "query_diff", tables } as Subscription["capture"] });

function open(shown: Subscription, role = "operator"): void {
  render(
    <As
      role={role}
      known={[
        [keys.connectionKinds, KINDS.map((kind) => (kind.source ? { ...kind, captures: [...kind.captures, QUERIES] } : kind))],
        [connectionQuery("shop").queryKey, { connection: connection(), etag: null }],
        [sourceTablesQuery("shop", "query_diff").queryKey, [orders, lines]],
      ]}
    >
      <SingleTables subscription={shown} />
    </As>,
  );
}

/** Answers GET with the subscription as it is on the server, and PATCH with `refusal` or the same; the bodies of PATCH. */
function serve(present: Subscription, refusal?: { status: number; body: object }): unknown[] {
  const sent: unknown[] = [];
  vi.spyOn(globalThis, "fetch").mockImplementation(async (input) => {
    const request = input as Request;
    if (request.method === "PATCH") {
      sent.push({ match: request.headers.get("if-match"), body: await request.clone().json() });
      if (refusal !== undefined) return Response.json(refusal.body, { status: refusal.status });
    }
    return Response.json(present, { headers: { ETag: '"7"' } });
  });
  return sent;
}

const press = (name: string) => userEvent.click(screen.getByRole("button", { name }));
const entry = (name: string) => within(screen.getByRole("group", { name: new RegExp(`^public.${name}`) }));

afterEach(() => vi.restoreAllMocks());

describe("single tables of a subscription", () => {
  it("are added, changed and taken away in one request, if nothing else changed them", async () => {
    const sent = serve(byQueries(STAMPED));
    open(byQueries(STAMPED));
    expect(screen.getByText("1 read in another way")).toBeTruthy();
    await press("Change single tables");
    expect(screen.getByRole("status").textContent).toBe("Nothing is changed.");
    expect(screen.getAllByText("Single tables")).toHaveLength(1);
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Another table" }), "public.orders");
    await userEvent.selectOptions(entry("orders").getByRole("combobox", { name: "How its changes are found" }), "row_checksum");
    await press("Read public.lines like the others");
    expect(screen.getByRole("status").textContent).toContain("2 tables are changed");
    await press("Save single tables");
    await waitFor(() => expect(screen.queryByRole("combobox", { name: "Another table" })).toBeNull());
    const entered = {
      method: "row_checksum",
      key: null,
      stamp_column: null,
      flag_column: null,
      sweep_every: null,
      columns: null,
      stamps_below: null,
    };
    expect(sent).toEqual([{ match: '"7"', body: { capture: { tables: { "public.orders": entered, "public.lines": null } } } }]);
  });

  it("are not overwritten where another user changed them", async () => {
    const sent = serve(byQueries({ "public.lines": { method: "row_checksum" } }));
    open(byQueries(STAMPED));
    await press("Change single tables");
    await press("Read public.lines like the others");
    await press("Save single tables");
    expect(await screen.findByText(/How public.lines is read was changed by another user/)).toBeTruthy();
    expect(sent).toEqual([]);
  });

  it("show what the server refuses at the field, and keep what was entered", async () => {
    const errors = [{ pointer: "/capture/tables/public.orders/stamp_column", detail: "there is no such column", in: "body" }];
    serve(byQueries({}), { status: 422, body: { code: "invalid_request", title: "Invalid request", detail: "No.", errors } });
    open(byQueries({}));
    await press("Change single tables");
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Another table" }), "public.orders");
    await userEvent.selectOptions(entry("orders").getByRole("combobox", { name: "How its changes are found" }), "timestamp");
    await userEvent.selectOptions(entry("orders").getByRole("combobox", { name: "Stamp column" }), "id");
    await press("Save single tables");
    expect(await entry("orders").findByText("There is no such column")).toBeTruthy();
    expect(entry("orders").getByRole("combobox", { name: "Stamp column" })).toHaveProperty("value", "id");
  });

  it("are not there for another capture, and not to be changed by readers", () => {
    open(subscription());
    expect(screen.queryByText("Single tables")).toBeNull();
    open(byQueries(STAMPED), "viewer");
    expect(screen.getByText(/yours is read-only/)).toBeTruthy();
    expect(screen.queryByRole("button")).toBeNull();
  });
});
