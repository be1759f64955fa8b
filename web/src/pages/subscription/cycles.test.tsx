import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, it, vi } from "vitest";
import type { Cycle, CyclePage } from "../../api/cycles";
import { keys } from "../../api/queries";
import { Announcements } from "../../components/announcements";
import { changesWords, consistencyWords, foundWords, methodWords, readWords } from "../../labels/cycles";
import { As } from "../../testing/caller";
import { cycle, NOW, subscription } from "../../testing/samples";
import Cycles from "./cycles";
import { SubscriptionFrame } from "./frame";

const request = vi.fn<(request: Request) => Promise<Response>>();
const queried = subscription({
  consistency: "snapshots",
  capture: { kind: "query_diff", every_seconds: 300, method: "incremental" },
});

beforeEach(() => {
  request.mockReset().mockResolvedValue(Response.json({ number: 8, position: "c8" }, { status: 202 }));
  vi.stubGlobal("fetch", request);
});

function show(items: Cycle[], { role = "operator", ...page }: Partial<CyclePage> & { role?: string } = {}): void {
  render(
    <As role={role} known={[[["cycles", "copy", ""], { items, as_of: null, next_at: null, next_page_token: null, ...page }]]}>
      <Cycles subscription={queried} />
      <Announcements place="/" />
    </As>,
  );
}

it("says how old the data is, and when the next cycle begins", () => {
  const soon = new Date(Date.now() + 150_000).toISOString();
  show([cycle()], { as_of: NOW, next_at: soon });
  const facts = screen.getAllByRole("definition").map(({ textContent }) => textContent);
  expect(facts[0]).toMatch(/^2026-05-04 .* ago$/);
  expect(facts[1]).toMatch(/^in [23]\s?min/);
  expect(facts[2]).toContain("every 5 minutes");
  expect(facts[3]).toBe("all rows are read");
});

it("lists cycles with what they found and read", () => {
  const [orders] = cycle().tables;
  if (orders === undefined) throw new Error("the sample has a table");
  show([
    cycle({ number: 8, position: "c8", state: "running", taken_at: null, ended_at: null, seconds: null, tables: [] }),
    cycle({
      one_snapshot: false,
      source_reads: { pages: 12 },
      tables: [orders, { ...orders, name: "lines", copied_again: true, snapshots: 3 }],
    }),
  ]);
  const [running, applied] = screen.getAllByRole("row").slice(1);
  expect(running?.textContent).toBe("8c8reads–––––");
  for (const words of [
    "on the target",
    "not read at one moment",
    "10 inserted, 2 updated",
    "pages: 12",
    "1 copied again",
    "ranges of its key in 3 snapshots, as the connection was lost",
    "changes: 10 inserted, 2 updated",
  ])
    expect(applied?.textContent).toContain(words);
  expect(applied?.textContent).toContain("its rows could not be compared: it is copied again, or parked");
  expect(screen.getAllByRole("definition")[1]?.textContent).toBe("reads (8)");
});

it("says why a cycle failed, and which tables one could not read", () => {
  const [orders] = cycle().tables;
  if (orders === undefined) throw new Error("the sample has a table");
  const fault = { fault: "source_unreachable", fault_detail: "shop: closed", fault_table: "public.orders" };
  const denied = { ...orders, name: "lines", fault: "source_privilege", fault_detail: "permission denied" };
  show([cycle({ number: 8, position: "c8", state: "failed", tables: [], ...fault }), cycle({ tables: [orders, denied] })]);
  const [failed, partly] = screen.getAllByRole("row").slice(1);
  expect(failed?.textContent).toContain("failedsource_unreachable at public.orders: shop: closed");
  expect(partly?.textContent).toContain("1 not read");
  expect(partly?.textContent).toContain("not read: source_privilege: permission denied");
});

it("begins a cycle at once, and names it", async () => {
  show([cycle()]);
  await userEvent.click(screen.getByRole("button", { name: "Begin a cycle now" }));
  expect(await screen.findByText("copy: cycle 8 was requested.")).toBeTruthy();
  const [sent] = request.mock.calls[0] ?? [];
  expect([sent?.method, new URL(sent?.url ?? "").pathname]).toEqual(["POST", "/api/v1/subscriptions/copy/cycles"]);
});

it("shows with the remedy why none can begin", async () => {
  const refusal = { code: "engine_unavailable", title: "No engine is connected", detail: "There is none.", remedy: "Start one." };
  request.mockResolvedValueOnce(Response.json(refusal, { status: 503 }));
  show([]);
  expect(screen.getByText("nothing was read yet")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Begin a cycle now" }));
  expect((await screen.findByRole("alert")).textContent).toContain("Start one.");
});

it("says so where there are none", () => {
  render(
    <As role="viewer">
      <Cycles subscription={subscription()} />
    </As>,
  );
  expect(screen.getByText(/has no cycles/)).toBeTruthy();
  expect(request).not.toHaveBeenCalled();
});

it("is no matter of viewers to begin one", () => {
  show([], { role: "viewer" });
  expect(screen.queryByRole("button")).toBeNull();
});

it.each([
  ["snapshots", 1],
  ["ranges", 1],
  ["transactions", 0],
] as const)("has a tab where readers see %s: %d", (consistency, tabs) => {
  render(
    <As role="viewer" known={[[keys.ofSubscription("copy"), { ...queried, consistency }]]}>
      <SubscriptionFrame name="copy" part={null}>
        {() => null}
      </SubscriptionFrame>
    </As>,
  );
  expect(screen.queryAllByRole("link", { name: "Cycles" })).toHaveLength(tabs);
});

it("puts counts into words", () => {
  expect(changesWords({ inserted: 0, updated: 0, deleted: 0 })).toBe("none");
  expect(readWords({ rows_read: 12, rows_hashed: 1000, rows_shared: 0 })).toBe("12 rows, hashes of 1,000");
  expect(readWords({ rows_read: 0, rows_hashed: 0, rows_shared: 1000 })).toBe("0 rows, 1,000 shared");
  expect(foundWords({ ...(cycle().tables[0] as Cycle["tables"][number]), ranges: 64, ranges_different: 2 })).toBe(
    "changes: 10 inserted, 2 updated; 2 of 64 ranges differed",
  );
  expect(foundWords({ ...(cycle().tables[0] as Cycle["tables"][number]), first: true })).toBe("read for the first time");
  expect(foundWords({ ...(cycle().tables[0] as Cycle["tables"][number]), since_stamp: true })).toContain("found by stamps");
  expect(consistencyWords("later")).toBe("unknown (later)");
  expect(methodWords("later")).toBe("later");
});
