import { act, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { UnderWay } from "./underWay";

const stop = vi.fn();
const form = (pending: boolean) => (
  <form>
    <button type="submit">Wait</button>
    <UnderWay doing="Waiting" verb="Stop waiting" work={{ pending, begunAt: Date.now(), stop }} />
  </form>
);

describe("UnderWay", () => {
  beforeEach(() => {
    vi.useFakeTimers();
    stop.mockReset();
  });
  afterEach(() => void vi.useRealTimers());

  it("shows nothing while nothing is under way", () => {
    const { container } = render(form(false));
    expect(container.textContent).toBe("Wait");
  });

  it("shows what is done and for how long", () => {
    const began = Date.now();
    const { container } = render(<UnderWay doing="Waiting" verb="Stop waiting" work={{ pending: true, begunAt: began, stop }} />);
    act(() => void vi.advanceTimersByTime(3_250));
    expect(screen.getByRole("status").textContent).toBe("Waiting …");
    expect(container.textContent).toBe("Stop waitingWaiting …3 s");
  });

  it("stops, and moves the focus to where the work was begun", () => {
    render(form(true));
    act(() => screen.getByRole("button", { name: "Stop waiting" }).click());
    expect(stop).toHaveBeenCalledTimes(1);
    expect(document.activeElement?.textContent).toBe("Wait");
  });
});
