import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { ConnectionKind } from "../../api/client";
import { keys } from "../../api/queries";
import { As } from "../../testing/caller";
import { connection, KINDS, NODES } from "../../testing/samples";
import { ConnectionForm } from "./connectionForm";

const PAPER: ConnectionKind = {
  kind: "paper",
  title: "Paper",
  description: "Books on a shelf.",
  source: true,
  target: false,
  embedded: false,
  settings: {
    properties: {
      shelf: { type: "string", title: "Shelf", description: "Where the books are." },
      page: { anyOf: [{ type: "integer" }, { type: "null" }], title: "First page", default: 1 },
    },
    required: ["shelf"],
  },
  secrets: { properties: { word: { type: "string", title: "Word" }, sign: { type: "string", title: "Sign" } } },
  captures: [{ kind: "ledger", title: "Ledger", description: "A ledger.", by_triggers: false, table_options: [], settings: {} }],
};
const STORED = [
  ...["shop-1", "shop-2", "shop-3", "shop-4"].map((name) => connection({ name })),
  connection({ name: "mart", kind: "duckdb", settings: { path: "mart.duckdb" } }),
];
const sent = vi.fn<(request: Request) => Promise<Response>>();

afterEach(() => vi.unstubAllGlobals());

function open(kinds: ConnectionKind[], present: Parameters<typeof ConnectionForm>[0]["present"] = null): void {
  sent.mockReset().mockImplementation(() => Promise.resolve(Response.json({ ok: true, findings: [] })));
  vi.stubGlobal("fetch", sent);
  render(
    <As
      role="operator"
      known={[
        [keys.connectionKinds, kinds],
        [keys.connections, STORED],
      ]}
    >
      <ConnectionForm present={present} role={null} taken={[]} onSaved={vi.fn()} />
    </As>,
  );
}

describe("the form of a connection", () => {
  it("asks for what the kind's schemas name, and checks what was typed", async () => {
    open([...KINDS, PAPER]);
    await userEvent.click(screen.getByLabelText("Paper"));
    await userEvent.type(screen.getByLabelText("Name of the connection"), "books");
    await userEvent.type(screen.getByLabelText("Shelf"), "upper");
    await userEvent.type(screen.getByLabelText("Word"), "please");
    expect(screen.getByLabelText("Shelf")).toHaveProperty("required", true);
    expect(screen.getByLabelText("First page").closest("details")).not.toBeNull();
    expect(screen.getByLabelText("Sign").closest("details")).not.toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "Check" }));
    const body: unknown = await sent.mock.calls[0]?.[0].json();
    expect(body).toEqual({
      role: "source",
      connection: { kind: "paper", settings: { shelf: "upper", page: 1 }, secrets: { word: "please" } },
    });
    expect(await screen.findByText("No problems found.")).toBeTruthy();
  });

  it("shows what is stored, and removes a secret only on request", async () => {
    const stored = connection({ name: "books", kind: "paper", settings: { shelf: "lower" }, secrets_set: ["sign"] });
    open([...KINDS, PAPER], { connection: stored, etag: null });
    expect(screen.getByLabelText("Shelf")).toHaveProperty("value", "lower");
    expect(screen.queryByLabelText("Remove the word that is set")).toBeNull();
    await userEvent.click(screen.getByLabelText("Remove the sign that is set"));
    await userEvent.click(screen.getByRole("button", { name: "Check" }));
    expect(await sent.mock.calls[0]?.[0].json()).toMatchObject({ connection: { secrets: { sign: null } } });
  });

  it("asks for the nodes of a connection by existing ones, each at most once", async () => {
    open([...KINDS, NODES]);
    await userEvent.click(screen.getByLabelText("Partitioned PostgreSQL"));
    await userEvent.type(screen.getByLabelText("Name of the connection"), "shops");
    for (const number of [1, 2]) {
      await userEvent.type(screen.getByLabelText(`Name ${number}`), `n${number}`);
      await userEvent.selectOptions(screen.getByLabelText(`Connection ${number}`), `shop-${number}`);
    }
    expect(screen.queryByRole("button", { name: "Remove 1 of Nodes" })).toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "Add to Nodes" }));
    const offered = [...screen.getByLabelText<HTMLSelectElement>("Connection 3").options].map(({ text }) => text);
    expect(offered).toEqual(["Choose …", "shop-3", "shop-4"]);
    expect(screen.queryByRole("button", { name: "Add to Nodes" })).toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "Remove 3 of Nodes" }));
    await userEvent.click(screen.getByRole("button", { name: "Check" }));
    const nodes = [
      { name: "n1", connection: "shop-1" },
      { name: "n2", connection: "shop-2" },
    ];
    expect(await sent.mock.calls[0]?.[0].json()).toEqual({
      role: "source",
      connection: { kind: "partitioned", settings: { nodes }, secrets: {} },
    });
  });

  it("shows the nodes that are stored, and keeps their order", async () => {
    const nodes = [
      { name: "b", connection: "shop-2" },
      { name: "a", connection: "shop-1" },
      { name: "c", connection: "shop-4" },
    ];
    open([...KINDS, NODES], { connection: connection({ name: "shops", kind: "partitioned", settings: { nodes } }), etag: null });
    expect(screen.getByLabelText("Name 1")).toHaveProperty("value", "b");
    expect(screen.getByLabelText("Connection 3")).toHaveProperty("value", "shop-4");
    await userEvent.click(screen.getByRole("button", { name: "Check" }));
    expect(await sent.mock.calls[0]?.[0].json()).toMatchObject({ connection: { settings: { nodes } } });
  });
});
