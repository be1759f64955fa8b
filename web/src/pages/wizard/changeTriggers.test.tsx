import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { ChangeTriggers as Found } from "../../api/client";
import { AskedAction } from "../../components/actions";
import { asked } from "../../components/asked";
import { As } from "../../testing/caller";
import { sourceTable } from "../../testing/samples";
import { ChangeTriggers } from "./changeTriggers";
import { changeTriggersQuery, sourceTablesQuery } from "./queries";

const ORDERS = { schema: "main", name: "orders" };
const NONE: Found = { installed: false, current: false, tables: [], install_sql: ["CREATE log"], remove_sql: [] };
const THERE: Found = {
  installed: true,
  version: 1,
  current: true,
  tables: [{ ...ORDERS, variant: "rows", current: true }],
  install_sql: [],
  remove_sql: ["DROP TRIGGER a"],
};
const OUTDATED: Found = {
  ...THERE,
  current: false,
  tables: [{ ...ORDERS, variant: "inserts", current: false }],
  install_sql: ["CREATE b"],
};
const sent = vi.fn<(request: Request) => Promise<Response>>();

beforeEach(() => {
  sent.mockReset();
  vi.stubGlobal("fetch", sent);
});
afterEach(() => {
  asked.set(null);
  vi.unstubAllGlobals();
});

const open = (found: Found, role = "admin") =>
  render(
    <As
      role={role}
      known={[
        [changeTriggersQuery("shop").queryKey, found],
        [sourceTablesQuery("shop").queryKey, [sourceTable(ORDERS), sourceTable({ schema: "main", name: "lines" })]],
      ]}
    >
      <ChangeTriggers name="shop" />
      <AskedAction place="/" />
    </As>,
  );

const button = (name: string): HTMLElement | null => screen.queryByRole("button", { name });

describe("the triggers of a connection", () => {
  it("says that there are none, and offers nothing to remove", () => {
    open(NONE);
    expect(screen.getByText("No triggers are installed.")).toBeTruthy();
    expect(button("Remove triggers shop")).toBeNull();
    expect(button("Update triggers shop")).toBeNull();
  });

  it("lists the tables, with what would mend those that need it", () => {
    open(OUTDATED);
    const row = within(screen.getByRole("row", { name: /main.orders/ }));
    expect(row.getByText("outdated or incomplete")).toBeTruthy();
    expect(row.getByText("inserts only: the table has no key")).toBeTruthy();
    expect(screen.getByRole("group", { name: "Bringing the triggers up to date", hidden: true }).textContent).toBe("CREATE b;");
    expect(button("Update triggers shop")).not.toBeNull();
  });

  it("shows a viewer the state only", () => {
    open(OUTDATED, "viewer");
    expect(screen.getByText("Some triggers are outdated or incomplete.")).toBeTruthy();
    expect(button("Remove triggers shop")).toBeNull();
    expect(screen.queryByText("Install them on tables before a subscription needs them")).toBeNull();
  });

  it("shows the plan of the chosen tables, and installs after a question", async () => {
    sent.mockImplementation((request) =>
      Promise.resolve(
        Response.json(
          request.method === "POST"
            ? { statements: [{ sql: "CREATE x", lock: "the file's", cost: "2 ms" }], grants: ["GRANT y"] }
            : { ...THERE, items: [] },
        ),
      ),
    );
    open(NONE);
    await userEvent.click(screen.getByText("Install them on tables before a subscription needs them"));
    await userEvent.click(await screen.findByLabelText("main.orders"));
    await userEvent.click(screen.getByRole("button", { name: "Show what it runs" }));
    const plan = await screen.findByRole("group", { name: "Installing the triggers" });
    expect(plan.textContent).toBe("-- locks: the file's\n-- cost: 2 ms\nCREATE x;");
    expect(screen.getByRole("group", { name: "Rights for the connection's user" }).textContent).toBe("GRANT y;");
    expect(await sent.mock.calls[0]?.[0].json()).toEqual({ tables: [ORDERS] });
    await userEvent.click(screen.getByRole("button", { name: "Install triggers shop" }));
    await userEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Install triggers" }));
    const put = sent.mock.calls.map(([request]) => request).find(({ method }) => method === "PUT");
    expect(await put?.clone().json()).toEqual({ tables: [ORDERS] });
  });

  it("asks for the name before a removal, and says why it is refused", async () => {
    const detail = "what they record is read by the subscription 'mart'";
    sent.mockImplementation(() =>
      Promise.resolve(
        Response.json(
          {
            status: 409,
            code: "change_triggers_in_use",
            title: "A subscription reads what the triggers record",
            detail,
            remedy: "Delete it.",
          },
          { status: 409, headers: { "content-type": "application/problem+json" } },
        ),
      ),
    );
    open(THERE);
    await userEvent.click(screen.getByRole("button", { name: "Remove triggers shop" }));
    const dialog = within(screen.getByRole("dialog"));
    const confirm = dialog.getByRole<HTMLButtonElement>("button", { name: "Remove triggers" });
    expect(confirm.disabled).toBe(true);
    await userEvent.type(dialog.getByLabelText(/Type shop to confirm/), "shop");
    await userEvent.click(confirm);
    expect(await dialog.findByText(new RegExp(detail))).toBeTruthy();
  });
});
