import { render, screen, within } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { keys } from "../api/queries";
import { As } from "../testing/caller";
import { connection, KINDS, NODES } from "../testing/samples";
import { ConnectionsPage } from "./connections";
import { DEFAULTS, type Draft } from "./wizard/draft";
import { EndsStep } from "./wizard/endsStep";

const nodes = [
  { name: "n1", connection: "shop-1" },
  { name: "n2", connection: "shop-2" },
];
const CONNECTIONS = [
  ...["shop-1", "shop-2", "shop-3"].map((name) => connection({ name })),
  connection({ name: "shops", kind: "partitioned", settings: { nodes }, secrets_set: [] }),
];
const KNOWN = [...KINDS, NODES];

afterEach(() => vi.unstubAllGlobals());

describe("connections that are nodes", () => {
  it("name what they belong to, and are not offered for deletion", () => {
    vi.stubGlobal(
      "fetch",
      vi.fn(() => new Promise(() => undefined)),
    );
    render(
      <As
        role="operator"
        known={[
          [keys.connectionKinds, KNOWN],
          [keys.connections, CONNECTIONS],
          [keys.subscriptions, []],
        ]}
      >
        <ConnectionsPage />
      </As>,
    );
    const entry = (name: string): HTMLElement => screen.getByRole("heading", { name }).closest("li") as HTMLElement;
    expect(within(entry("shop-1")).getByRole("link", { name: "shops" })).toBeTruthy();
    expect(within(entry("shop-1")).queryByRole("button", { name: /Delete/ })).toBeNull();
    expect(within(entry("shop-3")).getByRole("button", { name: /Delete/ })).toBeTruthy();
    expect(within(entry("shops")).getByText("n1: shop-1, n2: shop-2")).toBeTruthy();
    expect(within(entry("shops")).getByRole("button", { name: /Delete/ })).toBeTruthy();
  });
});

describe("the ends of a subscription", () => {
  const draft: Draft = {
    name: "s",
    source: "shops",
    target: "",
    tables: new Set(),
    insertOnly: new Set(),
    patterns: [],
    detections: {},
    options: DEFAULTS,
  };
  const show = (given: Draft, onChange = vi.fn()) => {
    render(
      <As role="operator" known={[[keys.connectionKinds, KNOWN]]}>
        <EndsStep draft={given} onChange={onChange} onNext={vi.fn()} connections={CONNECTIONS} subscriptions={[]} sample={null} />
      </As>,
    );
    return onChange;
  };

  it("offers no node of the source as its target", () => {
    show(draft);
    const to = within(screen.getByRole("region", { name: "To" }));
    expect(to.queryByLabelText(/^shop-1/)).toBeNull();
    expect(to.queryByLabelText(/^shops/)).toBeNull();
    expect(to.getByLabelText(/^shop-3/)).toBeTruthy();
  });

  it("puts a target back that is a node of the source that is chosen", () => {
    const onChange = show({ ...draft, source: "shop-3", target: "shop-2" });
    within(screen.getByRole("region", { name: "From" }))
      .getByLabelText(/^shops/)
      .click();
    expect(onChange).toHaveBeenCalledWith(expect.objectContaining({ source: "shops", target: "" }));
  });
});
