import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Table, TablePlan } from "../../api/client";
import { subscriptionQuery, tableQuery } from "../../api/queries";
import { As } from "../../testing/caller";
import { sourceTable, subscription, table } from "../../testing/samples";
import { sourceTablesQuery } from "../wizard/queries";
import { TableOptionsPage } from "./page";

const COLUMNS = [
  { name: "id", type: "bigint" },
  { name: "price", type: "numeric" },
];
const PLAN: TablePlan = {
  result: "changed",
  fields: [{ field: "columns", before: {}, after: { price: { map_as: "text" } }, effect: "new_copy" }],
  new_start: false,
  etag: '"a-1"',
};

let requests: Request[] = [];

/** What the server answers to each call, by its last word. */
function answers(given: Record<string, () => Response>): void {
  vi.spyOn(globalThis, "fetch").mockImplementation((input) => {
    const request = input as Request;
    requests.push(request.clone());
    const last = new URL(request.url).pathname.split("/").at(-1) ?? "";
    return Promise.resolve((given[last] ?? (() => Response.json({ ok: true, findings: [] })))());
  });
}

function show(present: Partial<Table> = {}, role = "operator"): void {
  render(
    <As
      role={role}
      known={[
        [subscriptionQuery("copy").queryKey, subscription()],
        [tableQuery("copy", "t1").queryKey, table(present)],
        [sourceTablesQuery("shop", subscription().capture.kind).queryKey, [sourceTable({ columns: COLUMNS })]],
      ]}
    >
      <TableOptionsPage subscription="copy" id="t1" />
    </As>,
  );
}

const review = (): Promise<void> => userEvent.click(screen.getByRole("button", { name: "Review the change" }));

beforeEach(() => {
  requests = [];
});

describe("options of a table", () => {
  it("says what a change does, and saves it only then", async () => {
    answers({ plans: () => Response.json(PLAN), t1: () => Response.json(table()) });
    show();
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Values of price" }), "as text");
    await review();
    const dialog = await screen.findByRole("dialog", { name: "Change options of public.orders?" });
    expect(dialog.textContent).toContain("Columns held as text: none → price; the table is copied again automatically");
    expect(requests.map(({ method }) => method)).not.toContain("PATCH");
    await waitFor(() => expect(screen.getByRole<HTMLButtonElement>("button", { name: "Save" }).disabled).toBe(false));
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(location.pathname).toBe("/subscriptions/copy/tables/t1"));
    const saved = requests.find(({ method }) => method === "PATCH");
    expect(saved?.headers.get("If-Match")).toBe('"a-1"');
    expect(await saved?.json()).toEqual({ columns: { price: { map_as: "text" } } });
    expect(requests.filter(({ url }) => url.endsWith("/reloads"))).toEqual([]);
  });

  it("reloads the table where the change waits for it, even if a reload was refused first", async () => {
    const refusals = [409];
    const waiting = { ...PLAN, fields: PLAN.fields.map((change) => ({ ...change, effect: "next_reload" as const })) };
    answers({
      plans: () => Response.json(waiting),
      t1: () => Response.json(table()),
      reloads: () => Response.json({ title: "A reload is running" }, { status: refusals.pop() ?? 202 }),
    });
    show();
    await userEvent.selectOptions(screen.getByRole("combobox", { name: "Values of price" }), "as text");
    await review();
    await screen.findByRole("dialog");
    expect(screen.getByRole<HTMLInputElement>("checkbox", { name: /Reload the table now/ }).checked).toBe(true);
    await waitFor(() => expect(screen.getByRole<HTMLButtonElement>("button", { name: "Save" }).disabled).toBe(false));
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    expect((await screen.findByRole("alert")).textContent).toContain("A reload is running");
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(location.pathname).toBe("/subscriptions/copy/tables/t1"));
    expect(requests.filter(({ method }) => method === "PATCH")).toHaveLength(1);
    expect(requests.filter(({ url }) => url.endsWith("/reloads"))).toHaveLength(2);
  });

  it("shows what is wrong beside the option", async () => {
    const errors = [
      { pointer: "/where", detail: "functions cannot be called" },
      { pointer: "/rename/price", detail: "a name has at most 63 bytes" },
    ];
    answers({ plans: () => Response.json({ title: "Invalid request", errors }, { status: 422 }) });
    show();
    await userEvent.type(screen.getByRole("textbox", { name: "Only rows where" }), "f(id)");
    await review();
    const where = await screen.findByRole("textbox", { name: "Only rows where", description: "functions cannot be called" });
    expect(where.getAttribute("aria-invalid")).toBe("true");
    expect(screen.getByRole("row", { name: /^price/ }).textContent).toContain("a name has at most 63 bytes");
    expect(screen.queryByRole("dialog")).toBeNull();
  });

  it("leaves a column out by its name", async () => {
    answers({});
    show();
    await userEvent.click(screen.getByRole("checkbox", { name: "Replicate price" }));
    expect(screen.getByRole<HTMLTextAreaElement>("textbox", { name: "Columns left out" }).value).toBe("price");
    expect(screen.getByRole<HTMLSelectElement>("combobox", { name: "Values of price" }).disabled).toBe(true);
  });

  it("has no way to save for a viewer, and says why", () => {
    show({}, "viewer");
    expect(screen.queryByRole("button", { name: "Review the change" })).toBeNull();
    expect(screen.getByText("Changes require an operator's token; yours is read-only.")).toBeTruthy();
    expect(screen.getByRole("group", { name: "Options of public.orders" }).hasAttribute("disabled")).toBe(true);
  });

  it("shows columns that the options name and the source lost", () => {
    show({ mask: { gone: { method: "null", type: "text", value: null } } });
    expect(screen.getByRole("row", { name: /^gone/ }).textContent).toContain("not on the source");
  });
});
