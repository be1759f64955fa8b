import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import { subscriptionQuery, tablesQuery } from "../../api/queries";
import { As } from "../../testing/caller";
import { sourceTable, subscription, table } from "../../testing/samples";
import { sourceTablesQuery } from "../wizard/queries";
import { AddTablePage } from "./addPage";

const KEYLESS = sourceTable({
  name: "log",
  key: [],
  problems: [{ severity: "error", code: "table_no_identity", what: "It has no key.", remedy: "Add a key.", sql: [] }],
});

function show(role = "operator"): void {
  render(
    <As
      role={role}
      known={[
        [subscriptionQuery("copy").queryKey, subscription()],
        [tablesQuery("copy", false).queryKey, [table()]],
        [sourceTablesQuery("shop", subscription().capture.kind).queryKey, [sourceTable(), sourceTable({ name: "lines" }), KEYLESS]],
      ]}
    >
      <AddTablePage subscription="copy" />
    </As>,
  );
}

const press = (name: string): Promise<void> => userEvent.click(screen.getByRole("button", { name }));

it("offers the tables that the subscription does not have", async () => {
  show();
  expect(screen.getByRole("row", { name: /^public.orders/ }).textContent).toContain("replicated");
  expect(screen.queryByRole("button", { name: "Choose public.orders" })).toBeNull();
  await userEvent.type(screen.getByRole("searchbox", { name: "Find by schema or name" }), "LIN");
  expect(screen.getByText("1 of 3 tables")).toBeTruthy();
  expect(screen.getByRole("button", { name: "Choose public.lines" })).toBeTruthy();
});

it("checks both ends before it adds the table with its options", async () => {
  const bodies: [string, unknown][] = [];
  vi.spyOn(globalThis, "fetch").mockImplementation(async (input) => {
    const request = input as Request;
    const { pathname } = new URL(request.url);
    if (request.method === "POST") bodies.push([pathname, await request.clone().json()]);
    const finding = { severity: "error", code: "target_privilege", what: "It may not create tables.", remedy: "Grant it.", sql: [] };
    if (pathname.endsWith("/mart/checks")) return Response.json({ ok: false, findings: [finding] });
    return Response.json(pathname.endsWith("/checks") ? { ok: true, findings: [] } : table({ id: "t9", name: "log" }));
  });
  show();
  await press("Choose public.log");
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: /Replicate only its inserts/ }).checked).toBe(true);
  await userEvent.type(screen.getByRole("textbox", { name: "Schema on the target" }), "mart");
  expect(screen.queryByRole("button", { name: /^Add the table/ })).toBeNull();
  await press("Check");
  expect(await screen.findByText(/It may not create tables/)).toBeTruthy();
  await press("Add the table nevertheless");
  await waitFor(() => expect(location.pathname).toBe("/subscriptions/copy/tables/t9"));
  const body = { schema: "public", name: "log", target: { schema: "mart" }, insert_only: true };
  expect(bodies.map(([path]) => path).sort()).toEqual([
    "/api/v1/connections/mart/checks",
    "/api/v1/connections/shop/checks",
    "/api/v1/subscriptions/copy/tables",
  ]);
  expect(bodies.at(-1)).toEqual(["/api/v1/subscriptions/copy/tables", body]);
  expect(bodies[0]?.[1]).toMatchObject({ tables: [body] });
});

it("adds nothing for a viewer, and says why", async () => {
  show("viewer");
  await press("Choose public.lines");
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Check" }).disabled).toBe(true);
  expect(screen.getByText("Adding requires an operator's token; yours is read-only.")).toBeTruthy();
});
