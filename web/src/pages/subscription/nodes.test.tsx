import { render, screen, within } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import type { Node } from "../../api/client";
import { nodesQuery } from "../../api/queries";
import { As } from "../../testing/caller";
import { node, subscription } from "../../testing/samples";
import { NodesSection } from "./nodes";

const request = vi.fn<(request: Request) => Promise<Response>>();

beforeEach(() => {
  request.mockReset().mockImplementation(() => new Promise(() => undefined));
  vi.stubGlobal("fetch", request);
});

function show(items: Node[], capture: Record<string, string> = { kind: "postgres_logs" }): void {
  render(
    <As role="viewer" known={[[nodesQuery("copy").queryKey, items]]}>
      <NodesSection subscription={subscription({ capture })} />
    </As>,
  );
}

it("shows a lane for each node, in the order of the source", () => {
  show([node({ name: "n2", lag_bytes: 2048 }), node({ name: "n1", applied: null, lag_bytes: null, at: null })]);
  const lanes = screen.getAllByRole("row").slice(1);
  expect(lanes.map((lane) => within(lane).getByRole("rowheader").textContent)).toEqual(["n2", "n1"]);
  expect(
    lanes.map((lane) =>
      within(lane)
        .getAllByRole("cell")
        .map(({ textContent }) => textContent?.trim()),
    ),
  ).toEqual([
    ["2\u00a0KiB", "0/16B3748", "0/16B3780", "0/16B3780"],
    ["–", "–", "0/16B3780", "0/16B3780"],
  ]);
  expect(screen.queryByText("others wait for it")).toBeNull();
  expect(screen.getByText(/Reported/)).toBeTruthy();
});

it("marks the node that the others wait for", () => {
  show([node(), node({ name: "n2", late: true })]);
  const header = screen.getByRole("rowheader", { name: /n2/ });
  expect(within(header).getByText("others wait for it")).toBeTruthy();
  expect(screen.getByText(/What needs the log of n2 waits/)).toBeTruthy();
});

it("says why a node cannot be read", () => {
  const away = { since: "2026-05-04T10:00:00Z", code: "source_unreachable", reason: "connection refused" };
  show([node(), node({ name: "n2", late: true, away })]);
  const header = screen.getByRole("rowheader", { name: /n2/ });
  expect(within(header).getByText("cannot be read")).toBeTruthy();
  expect(within(header).getByText(/connection refused/)).toBeTruthy();
});

it("is not there, and asks for nothing, if the source is one database", () => {
  show([], { kind: "postgres_log" });
  expect(screen.queryByText("Nodes")).toBeNull();
  expect(request).not.toHaveBeenCalled();
});
