import { describe, expect, it, vi } from "vitest";
import type { Table } from "./api/client";
import { Problem } from "./api/problem";
import { bulkActions, canBeReloaded, canBeRetried, forEachTable } from "./bulkActions";
import { table } from "./testing/samples";

const tables = ["a", "b", "c", "d", "e", "f"].map((name) => table({ id: name, name }));

describe("forEachTable", () => {
  it("calls each once", async () => {
    const call = vi.fn((_: Table) => Promise.resolve());
    await forEachTable(tables, call)();
    expect(call.mock.calls.map(([{ id }]) => id).sort()).toEqual(["a", "b", "c", "d", "e", "f"]);
  });

  it("names those that were refused, and tries only these again", async () => {
    const refusals = new Set(["b", "e"]);
    const call = vi.fn(({ id }: { id: string }) =>
      refusals.has(id)
        ? Promise.reject(Problem.of(new Response(null, { status: 409 }), { code: "cause_remains", detail: "No key.", remedy: "Add one." }))
        : Promise.resolve(),
    );
    const run = forEachTable(tables, call);
    const problem = Problem.from(await run().catch((error: unknown) => error));
    expect(problem.detail).toBe("It was done for 4 of 6 tables.");
    expect(problem.findings).toEqual([
      { severity: "error", code: "cause_remains", what: "public.b: No key.", remedy: "Add one." },
      { severity: "error", code: "cause_remains", what: "public.e: No key.", remedy: "Add one." },
    ]);
    call.mockClear();
    refusals.clear();
    await run();
    expect(call).toHaveBeenCalledTimes(2);
  });

  it("does not call all at once", async () => {
    let running = 0;
    let most = 0;
    await forEachTable(tables, async () => {
      running += 1;
      most = Math.max(most, running);
      await Promise.resolve();
      running -= 1;
    })();
    expect(most).toBe(4);
  });
});

it.each([
  ["live", null, false, true],
  ["paused", null, false, true],
  ["parked", "value_out_of_domain", true, true],
  ["parked", "schema_change_waiting", false, false],
  ["copying", null, false, false],
  ["removed", null, false, false],
] as const)("%s, %s: retried %s, reloaded %s", (state, code, retried, reloaded) => {
  const given = table({ state, code });
  expect([canBeRetried(given), canBeReloaded(given)]).toEqual([retried, reloaded]);
});

it("offers what some of the chosen tables allow, for these", () => {
  const parked = table({ id: "p", name: "p", state: "parked", code: "copy_failed" });
  const offered = bulkActions("copy", [parked, table(), table({ id: "c", state: "copying" })], () => undefined);
  expect(offered.map(({ verb, name }) => [verb, name])).toEqual([
    ["Try again", "1 selected table"],
    ["Reload", "2 selected tables"],
  ]);
  expect(offered[0]?.does[0]).toBe("public.p");
});
