import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import type { Partition, Table } from "../api/client";
import { partitionsQuery } from "../api/queries";
import { AskedAction } from "../components/actions";
import { As } from "../testing/caller";
import { partition, table } from "../testing/samples";
import { Partitions } from "./tablePartitions";

async function show(partitions: Partition[], { role = "operator", of = {} }: { role?: string; of?: Partial<Table> } = {}): Promise<void> {
  render(
    <As role={role} known={[[partitionsQuery("copy", "t1").queryKey, partitions]]}>
      <Partitions subscription="copy" table={table(of)} />
      <AskedAction place="/" />
    </As>,
  );
  await userEvent.click(screen.getByText("Show partitions"));
  await screen.findByText(/^Read again$/);
}

const TWO = [partition(), partition({ name: "public.orders_rest", reloadable: false, obstacle: "its bound is an expression" })];

it("reloads the chosen partitions", async () => {
  const sent = vi.spyOn(globalThis, "fetch").mockResolvedValue(Response.json({}, { status: 202 }));
  await show(TWO);
  await userEvent.click(screen.getByRole("checkbox", { name: "public.orders_06" }));
  await userEvent.click(screen.getByRole("button", { name: "Reload chosen partitions of public.orders" }));
  await userEvent.click(screen.getByRole("button", { name: "Reload chosen" }));
  await waitFor(() => expect(sent).toHaveBeenCalled());
  const request = sent.mock.calls[0]?.[0] as Request;
  expect(new URL(request.url).pathname).toBe("/api/v1/subscriptions/copy/tables/t1/reloads");
  expect(await request.json()).toEqual({ partitions: ["public.orders_06"] });
});

it("says what keeps a partition from being reloaded separately", async () => {
  await show(TWO);
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: "public.orders_rest" }).disabled).toBe(true);
  expect(screen.getByText("cannot be reloaded separately: its bound is an expression")).toBeTruthy();
});

it.each([
  [{ role: "viewer" }, "Reloading requires an operator's token; yours is read-only."],
  [{ of: { state: "paused" as const } }, "Partitions are reloaded only while the table is live; reload the whole table."],
])("offers no reload to %j", async (options, why) => {
  await show(TWO, options);
  expect(screen.getByText(why)).toBeTruthy();
  expect(screen.queryByRole("checkbox")).toBeNull();
});

it("says that a table is not partitioned", async () => {
  await show([]);
  expect(screen.getByText("The table is not partitioned.")).toBeTruthy();
});
