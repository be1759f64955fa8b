import { render, screen } from "@testing-library/react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { CrashGuard } from "./crash";

const Broken = (): never => {
  throw new Error("a defect");
};

describe("CrashGuard", () => {
  // React logs what it passes to the guard.
  beforeEach(() => void vi.spyOn(console, "error").mockImplementation(() => undefined));

  it("shows the content", () => {
    render(<CrashGuard place="/">fine</CrashGuard>);
    expect(screen.getByText("fine")).toBeTruthy();
  });

  it("shows a defect in place of the content", () => {
    render(
      <CrashGuard place="/">
        <Broken />
      </CrashGuard>,
    );
    expect(screen.getByRole("alert").textContent).toContain("a defect");
  });

  it("tries again on another page", () => {
    const { rerender } = render(
      <CrashGuard place="/">
        <Broken />
      </CrashGuard>,
    );
    rerender(<CrashGuard place="/other">fine</CrashGuard>);
    expect(screen.queryByRole("alert")).toBeNull();
    expect(screen.getByText("fine")).toBeTruthy();
  });
});
