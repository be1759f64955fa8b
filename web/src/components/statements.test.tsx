import { act, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { Announcements } from "./announcements";
import { Statements } from "./statements";

const offer = (writeText: (text: string) => Promise<void>): void =>
  void Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
const show = () =>
  render(
    <>
      <Statements name="Installing" sql={["CREATE TABLE a ();", " DROP TABLE b "]} />
      <Announcements place="/" />
    </>,
  );
const copy = (): Promise<void> => act(async () => screen.getByRole("button", { name: "Copy: Installing" }).click());

afterEach(() => Reflect.deleteProperty(navigator, "clipboard"));

describe("Statements", () => {
  it("ends each statement with one semicolon", () => {
    show();
    expect(screen.getByRole("group", { name: "Installing" }).textContent).toBe("CREATE TABLE a ();\nDROP TABLE b;");
  });

  it("copies them, and says so", async () => {
    const writeText = vi.fn(() => Promise.resolve());
    offer(writeText);
    show();
    await copy();
    expect(writeText).toHaveBeenCalledWith("CREATE TABLE a ();\nDROP TABLE b;");
    expect(screen.getByRole("status").textContent).toContain("Installing: the statements are in the clipboard.");
  });

  it("says that the browser refused", async () => {
    offer(() => Promise.reject(new Error("no")));
    show();
    await copy();
    expect(screen.getByRole("status").textContent).toContain("the browser does not let them be copied");
  });

  it("offers no copy where there is no clipboard", () => {
    show();
    expect(screen.queryByRole("button", { name: /Copy/ })).toBeNull();
  });
});
