import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { freshnessGoalsQuery } from "../api/freshness";
import type { FreshnessGoal } from "../labels/goals";
import { goalSample, later } from "../testing/samples";
import { FreshnessGoalSection } from "./freshnessGoal";

const OF_TABLE = { id: "t1", schema: "public", name: "orders" };

function shown(items: FreshnessGoal[], table: string | null = null): string {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Number.POSITIVE_INFINITY } } });
  client.setQueryData(freshnessGoalsQuery("copy", table).queryKey, { items });
  const { container } = render(
    <QueryClientProvider client={client}>
      <FreshnessGoalSection subscription="copy" table={table} />
    </QueryClientProvider>,
  );
  return (container.textContent ?? "").replaceAll("\u00a0", " ");
}

describe("FreshnessGoalSection", () => {
  it("says that there is no goal", () => expect(shown([])).toContain("None is set."));

  it("shows the goal, how far it is met and its budget", () => {
    const text = shown([goalSample({ late_since: later(0) })]);
    for (const part of ["99.5 % of the time at most 10 s", "99.871 %", "37 min", "26 %", "0.0, 2.2", "Late since", "8 min", "60 s"])
      expect(text).toContain(part);
    expect(text).not.toContain("Does not count");
  });

  it("links to tables whose own goal is missed", () => {
    const spent = goalSample({ table: OF_TABLE, met: false, alarms: ["spent"] });
    expect(shown([goalSample(), spent])).toContain("1 of its tables has its own goal; to be looked at: public.orders (budget spent)");
    expect(screen.getByRole("link", { name: "public.orders" }).getAttribute("href")).toBe("/subscriptions/copy/tables/t1");
  });

  it("shows a table its own goal, or that of the subscription as such", () => {
    expect(shown([goalSample({ table: OF_TABLE })], "t1")).not.toContain("the subscription's");
    expect(shown([goalSample()], "t2")).toContain("the subscription's");
  });
});
