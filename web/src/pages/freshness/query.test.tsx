import { render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { createRef, useState } from "react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { keys } from "../../api/queries";
import { noteServerTime } from "../../clock";
import { forgetAllQueries, queryHistory } from "../../queryHistory";
import { As } from "../../testing/caller";
import { readPoint, subscription, table } from "../../testing/samples";
import { FreshnessPage } from "./page";
import { QuerySection } from "./query";
import type { QueryWish } from "./queryForm";

const COPY = subscription();
const LABEL = "One SELECT in the target's SQL";
const ANSWER = {
  columns: [
    { name: "id", type: "int64", target_type: "BIGINT" },
    { name: "Order", type: "string", target_type: "VARCHAR" },
  ],
  rows: [[1, "row value"]],
  position: "0/55",
  ran_on: "target",
  truncated: false,
  left_out: [],
  stale: null,
  receipt: null,
};
const POSITIONS = { positions: {}, lag: {}, waits: 0, at: null };
const request = vi.fn<(request: Request) => Promise<Response>>();
const bodies = (): Promise<Record<string, unknown>[]> =>
  Promise.all(request.mock.calls.map(async ([sent]) => (await sent.clone().json()) as Record<string, unknown>));
const box = (): HTMLTextAreaElement => screen.getByLabelText(LABEL);
const press = (name: string): Promise<void> => userEvent.click(screen.getByRole("button", { name }));

function Desk() {
  const [wish, setWish] = useState<QueryWish>({ mode: "latest", position: "", readPoint: "" });
  return <QuerySection subscription={COPY} wish={wish} onWish={setWish} sqlBox={createRef()} />;
}

function open(tables = [table()], page = <Desk />): void {
  const known: [readonly unknown[], unknown][] = [
    [keys.caller, { name: "ann", role: "viewer" }],
    [keys.subscriptions, [COPY]],
    [[...keys.ofSubscription("copy"), "freshness"], POSITIONS],
    [
      ["read points", "copy"],
      [readPoint(), readPoint({ name: "old", state: "ended" })],
    ],
    [[...keys.ofSubscription("copy"), "tables", "present"], tables],
  ];
  render(
    <As role="viewer" known={known}>
      {page}
    </As>,
  );
}

beforeEach(() => {
  forgetAllQueries();
  request.mockReset().mockImplementation(() => Promise.resolve(Response.json(ANSWER)));
  vi.stubGlobal("fetch", request);
});

describe("a query", () => {
  it("is sent with its parameters and its freshness options", async () => {
    open();
    await userEvent.type(box(), "SELECT $1, $2, '$3'");
    expect(screen.queryByLabelText("$3")).toBeNull();
    await userEvent.type(screen.getByLabelText("$1"), "x");
    await userEvent.click(screen.getByLabelText("$2 is NULL"));
    await userEvent.selectOptions(screen.getByLabelText("If they are not there at the end of the wait"), "stale");
    await userEvent.selectOptions(screen.getByLabelText("If a table does not follow its source"), "include");
    await userEvent.click(screen.getByLabelText("End the wait at once if it is expected to be too long"));
    await press("Run");
    await screen.findByText("row value");
    expect((await bodies())[0]).toMatchObject({
      sql: "SELECT $1, $2, '$3'",
      parameters: ["x", null],
      freshness: { mode: "latest", on_timeout: "stale", on_unavailable: "include", refuse_early: true, timeout_ms: 10_000 },
    });
  });

  it("says how old its rows are, and which tables are left out", async () => {
    const stale = { wanted: "0/99", position: "0/55", seconds_behind: 12 };
    const left_out = [{ schema: "public", name: "orders", state: "paused", reason: "By a user." }];
    request.mockResolvedValueOnce(Response.json({ ...ANSWER, stale, left_out }));
    open();
    await userEvent.type(box(), "SELECT 1");
    await press("Run");
    expect(await screen.findByText(/older than requested, by 12.s: they are of 0\/55, and 0\/99 was waited for/)).toBeTruthy();
    expect(screen.getByText(/public\.orders was left out: it is paused\. By a user\./)).toBeTruthy();
  });

  it("is kept in the history without rows and values, comes back from there, and can be cleared", async () => {
    open();
    await userEvent.type(box(), "SELECT $1 AS kept");
    await userEvent.type(screen.getByLabelText("$1"), "secret value");
    await press("Run");
    await screen.findByText("row value");
    expect(localStorage.getItem("penstock-queries")).not.toMatch(/secret value|row value/);
    expect(queryHistory.get()[0]).toMatchObject({ caller: "ann", subscription: "copy", ended: "1 row" });
    await userEvent.clear(box());
    await press("SELECT $1 AS kept");
    expect(box().value).toBe("SELECT $1 AS kept");
    expect(document.activeElement).toBe(box());
    await press("Clear");
    expect(screen.queryByRole("button", { name: "SELECT $1 AS kept" })).toBeNull();
    expect(localStorage.getItem("penstock-queries")).toBeNull();
  });

  it("is kept in the history with its refusal", async () => {
    request.mockResolvedValueOnce(Response.json({ code: "query_invalid", title: "x", detail: "No such table." }, { status: 422 }));
    open();
    await userEvent.type(box(), "SELECT nothing");
    await press("Run");
    await screen.findByRole("alert");
    expect(queryHistory.get()[0]?.ended).toBe("query_invalid");
  });
});

describe("a query at a read point", () => {
  it("names it, demands no other freshness, and is never run on the source", async () => {
    open();
    await userEvent.selectOptions(screen.getByLabelText("If a table does not follow its source"), "source");
    await userEvent.click(screen.getByLabelText("those of a read point"));
    const points = screen.getByLabelText<HTMLSelectElement>("Read point");
    expect([...points.options].map(({ text }) => text)).toEqual(["choose one", "month-end, at 0/16B3748"]);
    await userEvent.type(box(), "SELECT 1");
    await press("Run");
    expect(request).not.toHaveBeenCalled();
    await userEvent.selectOptions(points, "month-end");
    await press("Run");
    expect((await screen.findByText("Read point", { selector: "dt" })).nextElementSibling?.textContent).toBe("month-end");
    expect((await bodies())[0]).toMatchObject({ read_point: "month-end", freshness: { mode: "any", on_unavailable: "error" } });
    expect(screen.getByLabelText<HTMLInputElement>("Maximum wait").disabled).toBe(true);
  });

  it("is taken from the history with its read point, also where that has ended", async () => {
    open([table()]);
    await userEvent.click(screen.getByLabelText("those of a read point"));
    await userEvent.selectOptions(screen.getByLabelText("Read point"), "month-end");
    await userEvent.type(box(), "SELECT 7");
    await press("Run");
    await screen.findByText("row value");
    queryHistory.set(queryHistory.get().map((past) => ({ ...past, readPoint: "gone" })));
    await userEvent.click(screen.getByLabelText("the current rows, without waiting"));
    await press("SELECT 7");
    expect(screen.getByLabelText<HTMLSelectElement>("Read point").selectedOptions[0]?.text).toBe("gone, ended");
  });

  it("begins with the read point that the address names", async () => {
    history.replaceState(null, "", "/freshness?subscription=copy&read_point=month-end");
    request.mockImplementation(({ method }) => Promise.resolve(Response.json(method === "GET" ? POSITIONS : ANSWER)));
    open([table()], <FreshnessPage />);
    await userEvent.type(box(), "SELECT 1");
    await press("Run");
    await screen.findByText("row value");
    const [sent] = request.mock.calls.find(([{ method }]) => method === "POST") ?? [];
    expect(await sent?.clone().json()).toMatchObject({ read_point: "month-end" });
  });
});

describe("the tables beside it", () => {
  it("insert their names and those of their columns at the cursor, quoted where they have to be", async () => {
    open([table({ target: { schema: "public", name: "user" } })]);
    await userEvent.type(box(), "SELECT FROM");
    await press("Insert public.user");
    expect(box().value).toBe('SELECT FROM public."user"');
    expect(document.activeElement).toBe(box());
    await press("Columns of public.user");
    const columns = await screen.findByRole("button", { name: "Insert Order" });
    expect(columns.closest("li")?.textContent).toBe("Order VARCHAR");
    expect((await bodies())[0]).toMatchObject({ sql: 'SELECT * FROM public."user" LIMIT 0', freshness: { mode: "any" } });
    box().setSelectionRange(7, 7);
    await userEvent.click(columns);
    expect(box().value).toBe('SELECT "Order" FROM public."user"');
  });

  it("have their names on the target, their state and their rows, shared tables once", () => {
    const shared_into = { schema: "all", name: "orders", source_column: "of", source_value: "a" };
    open([
      table({ id: "t1", target: { schema: "copy", name: "b" }, state: "paused", shared_into }),
      table({ id: "t2", target: { schema: "public", name: "orders" }, shared_into }),
    ]);
    const list = within(screen.getByRole("region", { name: "Tables of the copy" })).getAllByRole("listitem");
    expect(list.map((item) => item.textContent)).toEqual([
      "▸all.ordersshared table",
      "▸copy.bpaused; of public.orders; 10 rows when copied",
      "▸public.orders10 rows when copied",
    ]);
  });

  it("are found by a part of the name, and say why columns cannot be read", async () => {
    open([table(), table({ id: "t2", target: { schema: "public", name: "notes" } })]);
    await userEvent.type(screen.getByLabelText("Find by name"), "NOTE");
    expect(screen.queryByRole("button", { name: "Insert public.orders" })).toBeNull();
    request.mockResolvedValueOnce(Response.json({ code: "query_invalid", detail: "It is not there yet." }, { status: 422 }));
    await press("Columns of public.notes");
    expect(await screen.findByText(/They cannot be read: It is not there yet\./)).toBeTruthy();
  });
});

describe("a download", () => {
  const saved = vi.fn<(file: Blob) => string>();

  beforeEach(() => {
    saved.mockReset().mockReturnValue("blob:x");
    Object.assign(URL, { createObjectURL: saved, revokeObjectURL: vi.fn() });
    vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => undefined);
  });

  const run = async (): Promise<void> => {
    open();
    await userEvent.type(box(), "SELECT 1");
    await press("Run");
    await screen.findByText("row value");
  };

  it("runs the shown query again for all rows, and saves them", async () => {
    await run();
    await userEvent.type(box(), "23");
    const headers = { "Content-Type": "text/csv", "Penstock-Position": "0/77", "Penstock-Ran-On": "source", "Penstock-Left-Out": "a.b%2C" };
    request.mockResolvedValueOnce(new Response("id\n1\n", { headers }));
    await press("CSV");
    expect(await screen.findByText(/it ran on the source; rows of a\.b, are older/)).toBeTruthy();
    expect(screen.getByText("0/77")).toBeTruthy();
    expect((await bodies())[1]).toMatchObject({ sql: "SELECT 1", max_rows: null });
    expect(request.mock.calls[1]?.[0].headers.get("accept")).toBe("text/csv");
    expect(await saved.mock.calls[0]?.[0].text()).toBe("id\n1\n");
  });

  it("saves nothing of an answer that breaks off", async () => {
    await run();
    const broken = new ReadableStream({ start: (controller) => controller.error(new TypeError("network")) });
    request.mockResolvedValueOnce(new Response(broken, { headers: { "Content-Type": "application/vnd.apache.arrow.stream" } }));
    await press("Arrow");
    await waitFor(() => expect(screen.getByRole("alert").textContent).toContain("No file was saved"));
    expect(saved).not.toHaveBeenCalled();
  });

  it("has Parquet among its formats", async () => {
    await run();
    request.mockResolvedValueOnce(new Response("PAR1", { headers: { "Content-Type": "application/vnd.apache.parquet" } }));
    await press("Parquet");
    expect(await screen.findByText(/\.parquet, 4/)).toBeTruthy();
    expect(request.mock.calls[1]?.[0].headers.get("accept")).toBe("application/vnd.apache.parquet");
    expect((await bodies())[1]).toMatchObject({ max_rows: null });
  });

  it("stays with its answer when the server's clock is found to differ", async () => {
    await run();
    const download = screen.getByRole("button", { name: "CSV" });
    noteServerTime(new Response(null, { headers: { Date: "Mon, 01 Jan 2001 00:00:00 GMT" } }));
    await userEvent.type(box(), "2");
    expect(screen.getByRole("button", { name: "CSV" })).toBe(download);
    noteServerTime(new Response(null, { headers: { Date: new Date().toUTCString() } }));
  });

  it("says why the server refuses it", async () => {
    await run();
    request.mockResolvedValueOnce(Response.json({ code: "freshness_timeout", detail: "Too late." }, { status: 504 }));
    await press("JSON");
    expect((await screen.findByRole("alert")).textContent).toContain("Too late.");
    expect((await bodies())[1]).toMatchObject({ max_rows: 1_000_000 });
    expect(saved).not.toHaveBeenCalled();
  });
});
