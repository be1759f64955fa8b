import { act, render, screen } from "@testing-library/react";
import { Suspense } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { CrashGuard } from "./components/crash";
import { later } from "./later";

const Part = () => <p>the part</p>;

describe("later", () => {
  beforeEach(() => {
    vi.useFakeTimers();
    vi.spyOn(console, "error").mockImplementation(() => undefined);
  });
  afterEach(() => vi.useRealTimers());

  /** Shows a part whose load fails so many times, and returns how often it was loaded. */
  async function show(failures: number) {
    const load = vi.fn(async () => {
      if (load.mock.calls.length <= failures) throw new TypeError("Failed to fetch");
      return Part;
    });
    const Late = later(load);
    await act(async () => {
      render(
        <CrashGuard place="/">
          <Suspense fallback="waiting">
            <Late />
          </Suspense>
        </CrashGuard>,
      );
    });
    return load;
  }

  it("loads once", async () => {
    const load = await show(0);
    expect(screen.getByText("the part")).toBeTruthy();
    expect(load).toHaveBeenCalledTimes(1);
  });

  it("repeats a failed load", async () => {
    await show(3);
    expect(screen.getByText("waiting")).toBeTruthy();
    await act(() => vi.advanceTimersByTimeAsync(2000));
    expect(screen.getByText("the part")).toBeTruthy();
  });

  it("does not wait once the browser is online", async () => {
    const load = await show(1);
    await act(async () => void dispatchEvent(new Event("online")));
    expect(screen.getByText("the part")).toBeTruthy();
    expect(load).toHaveBeenCalledTimes(2);
  });

  it("ends with an error that says why", async () => {
    await show(100);
    await act(() => vi.advanceTimersByTimeAsync(60_000));
    expect(screen.getByRole("alert").textContent).toContain("was upgraded");
  });
});
