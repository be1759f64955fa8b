import { describe, expect, it } from "vitest";
import type { Subscription } from "../api/client";
import type { HistoryPoint } from "../api/history";
import { later, NOW, point, subscription } from "../testing/samples";
import { courseOf, rounded, short } from "./stages";

const now = Date.parse(later(10));
const course = (points: Partial<HistoryPoint>[], changes: Partial<Subscription> = {}) =>
  courseOf(
    subscription(changes),
    points.map((each) => point(each)),
    now,
  );
const stage = (found: ReturnType<typeof courseOf>, name: string) => found.stages.find((each) => each.name === name);

describe("courseOf", () => {
  it("lists the stages in the order of the pipeline", () => {
    expect(course([]).stages.map(({ name }) => name)).toEqual([
      "Source's log",
      "Capture",
      "Sort and seal",
      "Net change",
      "Apply",
      "Visible",
    ]);
  });

  it("writes rates a second over the time of the points", () => {
    const found = course([{ at: NOW, seconds: 10, transactions: 40, rows: { insert: 100, update: 20 }, net_rows: 5 }]);
    expect(stage(found, "Sort and seal")?.rate).toBe("4.0 commits/s");
    expect(stage(found, "Net change")?.rate).toBe("12 changes/s");
    expect(stage(found, "Apply")?.rate).toBe("0.5 rows/s");
  });

  it("averages the log's rates over the points that have one", () => {
    const rates = (source: number | null) => ({ source, captured: null, applied: null });
    const found = course([
      { log_bytes_per_second: rates(1024) },
      { log_bytes_per_second: rates(null) },
      { log_bytes_per_second: rates(3072) },
    ]);
    expect(stage(found, "Source's log")?.rate).toBe("2\u00a0KiB/s");
    expect(stage(found, "Capture")?.rate).toBeNull();
  });

  it("shows the log that waits at each place", () => {
    const found = course([{ unread_bytes: 512, unapplied_bytes: 2048 }], { retained_bytes: 4096 });
    expect(stage(found, "Source's log")?.backlog).toBe("4\u00a0KiB retained");
    expect(stage(found, "Capture")?.backlog).toBe("512\u00a0B not read yet");
    expect(stage(found, "Sort and seal")?.backlog).toBe("2\u00a0KiB read but not applied");
    expect(stage(found, "Visible")?.backlog).toBe("2\u00a0KiB not visible yet");
  });

  it("has no figures without points of the last minute", () => {
    const found = course([{ at: later(-100), transactions: 9 }]);
    expect(stage(found, "Sort and seal")?.rate).toBeNull();
    expect(found.why).toBe("There was no report in the last minute.");
  });

  it("averages the time of a stage over its batches", () => {
    const found = course([
      { batches: 1, stage_seconds: { commit: 0.2 } },
      { batches: 3, stage_seconds: { commit: 0.6 } },
    ]);
    expect(stage(found, "Apply")?.time).toBe("500 ms");
  });
});

describe("the bottleneck", () => {
  it("is not looked for while the subscription does not run", () => {
    expect(course([{ batches: 9 }], { state: "paused" })).toMatchObject({
      bottleneck: null,
      why: expect.stringMatching(/^It is not running/) as string,
    });
  });

  it("is capture where more log waits to be read than to be applied", () => {
    const found = course([{ unread_bytes: 2_000_000, unapplied_bytes: 1_000_000 }]);
    expect(found.stages[found.bottleneck ?? -1]?.name).toBe("Capture");
  });

  it("is not capture for little log", () =>
    expect(course([{ unread_bytes: 900_000 }]).why).toBe("Nothing was applied in the last minute."));

  it("is the stage that had a batch for most of the time", () => {
    const found = course([{ seconds: 10, batches: 10, stage_seconds: { commit: 0.9, job: 0.2 } }]);
    expect(found.stages[found.bottleneck ?? -1]?.name).toBe("Apply");
    expect(found.why).toBe("In the last minute a batch was in it for 90\u00a0% of the time, 900 ms each.");
  });

  it("is the net change where that takes longer", () => {
    const found = course([{ seconds: 10, batches: 10, stage_seconds: { commit: 0.1, job: 1.5 } }]);
    expect(found.stages[found.bottleneck ?? -1]?.name).toBe("Net change");
    expect(found.why).toContain("at any time");
  });

  it("is nowhere while no stage is busy", () => {
    expect(course([{ seconds: 10, batches: 1, stage_seconds: { commit: 0.5 } }])).toMatchObject({
      bottleneck: null,
      why: "No bottleneck: the busiest stage had a batch for 5\u00a0% of the last minute.",
    });
  });
});

describe("figures", () => {
  it.each([
    [0, "0"],
    [0.44, "0.4"],
    [9.96, "10.0"],
    [12.4, "12"],
    [12_345, "12,345"],
  ])("rounded(%d) is %s", (value, text) => expect(rounded(value)).toBe(text));

  it.each([
    [0.0614, "61 ms"],
    [0.9996, "1000 ms"],
    [1.25, "1.3\u00a0s"],
  ])("short(%d) is %s", (value, text) => expect(short(value)).toBe(text));
});
