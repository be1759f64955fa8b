import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import { tablesQuery } from "../api/queries";
import { AskedAction } from "../components/actions";
import { As } from "../testing/caller";
import { subscription, table } from "../testing/samples";
import { Tables } from "./subscriptionTables";

const TABLES = [
  table({ id: "a", name: "a", state: "parked", code: "value_out_of_domain" }),
  table({ id: "b", name: "b", state: "parked", code: "table_unfit" }),
  table({ id: "c", name: "c" }),
  table({ id: "d", name: "d", state: "copying" }),
];

const show = (role = "operator", tables = TABLES) =>
  render(
    <As role={role} known={[[tablesQuery("copy", false).queryKey, tables]]}>
      <Tables subscription={subscription()} />
      <AskedAction place="/" />
    </As>,
  );

const press = (name: string): Promise<void> => userEvent.click(screen.getByRole("button", { name }));

it("tries all parked tables again", async () => {
  const sent = vi.spyOn(globalThis, "fetch").mockImplementation(() => Promise.resolve(Response.json({}, { status: 202 })));
  show();
  await press("Select 2 parked tables");
  expect(screen.getByText("2 tables selected")).toBeTruthy();
  await press("Try again 2 selected tables");
  expect(screen.getByRole("dialog").textContent).toContain("public.a, public.b");
  await press("Try again");
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const retried = sent.mock.calls.map(([input]) => new URL((input as Request).url).pathname).filter((path) => path.endsWith("/retries"));
  expect(retried.sort()).toEqual(["a", "b"].map((id) => `/api/v1/subscriptions/copy/tables/${id}/retries`));
  expect(screen.queryByText("2 tables selected")).toBeNull();
});

it("reloads the selected tables, and cannot select those that are being copied", async () => {
  show();
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: "Select public.d" }).disabled).toBe(true);
  await press("Select all 3");
  expect(screen.getByRole("button", { name: "Reload 3 selected tables" })).toBeTruthy();
  await userEvent.click(screen.getByRole("checkbox", { name: "Select public.c" }));
  expect(screen.getByRole("button", { name: "Reload 2 selected tables" })).toBeTruthy();
});

it.each([
  ["viewer", TABLES],
  ["operator", TABLES.slice(2)],
])("offers no selection to a %s with %j", (role, tables) => {
  show(role, tables);
  expect(screen.queryByRole("checkbox")).toBeNull();
});
