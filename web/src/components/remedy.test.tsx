import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { RemedyAction } from "../api/problem";
import type { Place } from "../labels/remedies";
import { queryClient } from "../stream/queryClient";
import { As } from "../testing/caller";
import { table } from "../testing/samples";
import { AskedAction } from "./actions";
import { Remedy } from "./remedy";

const TABLE = { subscription: "shop", table: "public.orders" };
const named = (action: string, args: Record<string, string> = TABLE): RemedyAction => ({ action, arguments: args, command: "penstock x" });

const show = (actions: RemedyAction[], { role = "operator", here }: { role?: string; here?: Place } = {}) =>
  render(
    <As role={role}>
      <Remedy text="POST /subscriptions/{name}/tables/{table_id}/retries, then look." actions={actions} here={here} />
      <AskedAction place="/" />
    </As>,
  );

const request = vi.fn<(request: Request) => Promise<Response>>();
const sent = (): string[] => request.mock.calls.map(([{ method, url }]) => `${method} ${url.replace(location.origin, "")}`);
const listing = (...items: unknown[]): Response => Response.json({ items, next_page_token: null });
const take = async (label: string, verb: string): Promise<void> => {
  await userEvent.click(screen.getByRole("button", { name: label }));
  expect(request).not.toHaveBeenCalled();
  await userEvent.click(screen.getByRole("button", { name: verb }));
};

beforeEach(() => {
  request.mockReset();
  vi.stubGlobal("fetch", request);
  vi.spyOn(queryClient, "invalidateQueries").mockResolvedValue(undefined);
});

describe("a remedy's operation", () => {
  it("is done by a button that asks first, on the table of that name", async () => {
    request.mockResolvedValueOnce(listing(table())).mockResolvedValueOnce(Response.json({}));
    show([named("table.retry")]);
    await take("Try again public.orders", "Try again");
    await waitFor(() =>
      expect(sent()).toEqual([
        "GET /api/v1/subscriptions/shop/tables?page_size=1000&schema=public&name=orders",
        "POST /api/v1/subscriptions/shop/tables/t1/retries",
      ]),
    );
  });

  it("is done to no table where several have the name", async () => {
    const dotted = [table({ schema: "a.b", name: "c" }), table({ id: "t2", schema: "a", name: "b.c" })];
    request.mockResolvedValueOnce(listing(...dotted));
    show([named("table.reload", { subscription: "shop", table: "a.b.c" })]);
    await take("Reload a.b.c", "Reload");
    expect((await screen.findByRole("alert")).textContent).toContain("several tables named a.b.c");
    expect(sent()).toEqual(["GET /api/v1/subscriptions/shop/tables?page_size=1000"]);
  });

  it("is named with the role that may do it where the reader may not", () => {
    show([named("ddl_capture.install", { connection: "src" }), named("connection.change", { connection: "src" })], { role: "viewer" });
    expect(screen.queryAllByRole("button")).toEqual([]);
    expect(screen.queryAllByRole("link")).toEqual([]);
    expect(screen.getAllByRole("listitem").map((item) => item.textContent)).toEqual([
      "“Install src” needs the role admin; you are signed in as viewer.",
      "“Change src” needs the role operator; you are signed in as viewer.",
    ]);
  });

  it.each([
    ["table.approve", TABLE, "/subscriptions/shop?q=public.orders"],
    ["table.refused_rows", { subscription: "shop", table: "t1" }, "/subscriptions/shop/tables/t1"],
    ["table.partitions", { subscription: "shop" }, "/subscriptions/shop"],
    ["table.list", { subscription: "shop" }, "/subscriptions/shop"],
    ["subscription.list", {}, "/"],
    ["connection.change", { connection: "src" }, "/connections/src"],
    ["connection.kinds", {}, "/new-connection"],
    ["alert_channel.list", {}, "/alerts"],
  ])("%s leads to its page", (action, args, address) => {
    show([named(action, args as Record<string, string>)]);
    expect(screen.getByRole("link").getAttribute("href")).toBe(address);
  });

  it("leads administrators to the tokens", () => {
    show([named("token.list")], { role: "admin" });
    expect(screen.getByRole("link").getAttribute("href")).toBe("/tokens");
  });

  it.each(["table.copy_to_moon", "constructor"])("%s is shown as a command", (action) => {
    show([named(action)]);
    expect(screen.getByText("penstock x").tagName).toBe("CODE");
  });

  it("is shown as a command where the subscription is not known", () => {
    show([named("subscription.resume", {})]);
    expect(screen.getByText("penstock x")).toBeTruthy();
  });

  it("has its name from the API where a server of an earlier release has no command", () => {
    show([{ action: "table.copy_to_moon", arguments: {} } as unknown as RemedyAction]);
    expect(screen.getByText("table.copy_to_moon")).toBeTruthy();
  });

  it("is left to the page that has it", () => {
    show([named("table.retry")], { here: "table" });
    expect(screen.queryByRole("button")).toBeNull();
    expect(screen.getByText("“Try again”, then look.")).toBeTruthy();
  });

  it("is named with its role also on the page whose button the reader does not get", () => {
    show([named("table.retry")], { role: "viewer", here: "table" });
    expect(screen.getByRole("listitem").textContent).toBe(
      "“Try again public.orders” needs the role operator; you are signed in as viewer.",
    );
  });

  it("is said to be beside the remedy, not on another page", () => {
    show([named("table.retry")], { here: "subscription" });
    expect(screen.getByText("“Try again”, then look.")).toBeTruthy();
  });
});
