import { act, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { queryClient } from "../stream/queryClient";
import { Announcements, announce } from "./announcements";

const shown = (): string => screen.getByRole("status").textContent ?? "";
const advance = (ms: number): void => act(() => void vi.advanceTimersByTime(ms));

describe("Announcements", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("shows the latest one until it is dismissed", () => {
    render(<Announcements place="/" />);
    act(() => announce("first"));
    act(() => announce("second"));
    expect(shown()).toContain("second");
    expect(shown()).not.toContain("first");
    act(() => screen.getByRole("button", { name: "Dismiss" }).click());
    expect(shown()).toBe("");
  });

  it("goes with the page", () => {
    const { rerender } = render(<Announcements place="/a" />);
    act(() => announce("done"));
    rerender(<Announcements place="/b" />);
    expect(shown()).toBe("");
  });

  it("goes when its subject has another state, but not before it can be read", () => {
    let state = "live";
    render(<Announcements place="/" />);
    act(() => announce("a pause was requested", { state: () => state }));
    state = "paused";
    act(() => void queryClient.setQueryData(["x"], 1));
    advance(4_900);
    expect(shown()).toContain("a pause was requested");
    advance(100);
    expect(shown()).toBe("");
  });

  it("stays while its subject is as it was, and goes with the next read that shows another state", () => {
    let state = "live";
    render(<Announcements place="/" />);
    act(() => announce("a pause was requested", { state: () => state }));
    advance(60_000);
    expect(shown()).toContain("a pause was requested");
    state = "paused";
    act(() => void queryClient.setQueryData(["x"], 2));
    advance(0);
    expect(shown()).toBe("");
  });
});
