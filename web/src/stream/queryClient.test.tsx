import { describe, expect, it } from "vitest";
import { Problem } from "../api/problem";
import { link } from "./connection";
import { queryClient, readAt } from "./queryClient";

const { refetchInterval, retry } = queryClient.getDefaultOptions().queries ?? {};

describe("queryClient", () => {
  it.each([
    ["live", 15_000],
    ["connecting", 5_000],
    ["reconnecting", 5_000],
  ] as const)("while the stream is %s it reads every %d ms", (state, ms) => {
    link.set(state);
    expect((refetchInterval as () => number)()).toBe(ms);
  });

  it("tries twice more where the server does not answer", () => {
    const again = retry as (failures: number, error: Error) => boolean;
    expect([0, 1, 2].map((failures) => again(failures, Problem.unreachable()))).toEqual([true, true, false]);
  });

  it("does not repeat what the server refused", () => {
    const refused = Problem.of(new Response(null, { status: 403 }), {});
    expect((retry as (failures: number, error: Error) => boolean)(0, refused)).toBe(false);
  });

  it("notes when something was read", async () => {
    const before = Date.now();
    await queryClient.fetchQuery({ queryKey: ["x"], queryFn: () => Promise.resolve(1) });
    expect(readAt.get()).toBeGreaterThanOrEqual(before);
  });
});
