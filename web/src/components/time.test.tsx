import { act, render } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { zone } from "../display";
import { later, NOW } from "../testing/samples";
import { Ago, Moment } from "./time";

const text = (element: React.ReactElement): string | null => render(element).container.textContent;

afterEach(() => zone.set("local"));

describe("Moment", () => {
  it("is a local time at first", () => expect(text(<Moment at={NOW} />)).toBe("2026-05-04 15:30:00"));

  it("is in UTC for those who chose it, and says so", () => {
    zone.set("UTC");
    expect(text(<Moment at={NOW} />)).toBe("2026-05-04 10:00:00 UTC");
  });

  it("follows the choice at once", () => {
    const { container } = render(<Moment at={NOW} parts="time" />);
    expect(container.textContent).toBe("15:30:00");
    act(() => zone.set("UTC"));
    expect(container.textContent).toBe("10:00:00");
  });

  it("is exact for programs", () => {
    const { container } = render(<Moment at={Date.parse(NOW)} />);
    expect(container.querySelector("time")?.dateTime).toBe("2026-05-04T10:00:00.000Z");
  });

  it("is unknown where it is no moment", () => expect(text(<Moment at="soon" />)).toBe("unknown"));
});

describe("Ago", () => {
  beforeEach(() => void vi.useFakeTimers({ now: Date.parse(NOW) }));
  afterEach(() => void vi.useRealTimers());

  it.each([
    [0, "just now"],
    [4, "just now"],
    [12, "10 s ago"],
    [118, "120 s ago"],
    [120, "2\u00a0min ago"],
    [7_200, "2.0\u00a0h ago"],
    [-60, "just now"],
  ])("%d seconds are written as %s", (age, words) => expect(text(<Ago at={later(-age)} />)).toBe(words));

  it.each([null, undefined])("%s is unknown", (at) => expect(text(<Ago at={at} />)).toBe("–"));

  it("grows while it is shown", () => {
    const { container } = render(<Ago at={NOW} />);
    act(() => void vi.advanceTimersByTime(30_000));
    expect(container.textContent).toBe("30 s ago");
  });
});
