import { describe, expect, it } from "vitest";
import { node } from "../testing/samples";
import { hasNodes, laneShare, lateWords } from "./nodes";

describe("nodes", () => {
  it("are what sources with merged logs have", () => {
    expect(hasNodes({ capture: { kind: "postgres_logs" } })).toBe(true);
    expect(hasNodes({ capture: { kind: "postgres_log" } })).toBe(false);
    expect(hasNodes({ capture: {} })).toBe(false);
  });

  it("have lanes by the largest lag, which little does not fill", () => {
    const far = node({ lag_bytes: 4 * 1024 * 1024 });
    const near = node({ lag_bytes: 1024 * 1024 });
    const unknown = node({ lag_bytes: null });
    expect([far, near, unknown].map((one) => laneShare(one, [far, near, unknown]))).toEqual([1, 0.25, 0]);
    expect(laneShare(node({ lag_bytes: 1024 }), [node({ lag_bytes: 1024 })])).toBe(1 / 1024);
  });

  it("say which ones the others wait for", () => {
    expect(lateWords([node(), node({ name: "n2" })])).toBeNull();
    expect(lateWords([node(), node({ name: "n2", late: true }), node({ name: "n3", late: true })])).toContain("the log of n2, n3 waits:");
  });
});
