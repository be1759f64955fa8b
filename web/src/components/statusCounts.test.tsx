import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it } from "vitest";
import { useFilters } from "../filters";
import { StatusCounts } from "./statusCounts";

const ITEMS = [
  { value: "failed", tone: "bad" as const, word: "failed", number: 0 },
  { value: "running", tone: "good" as const, word: "running", number: 1234 },
];
function Counts() {
  return <StatusCounts noun="tables" filter="state" filters={useFilters()} items={ITEMS} total={1234} />;
}
const links = (): [string | null, boolean][] =>
  screen.getAllByRole("link").map((link) => [link.textContent, link.getAttribute("aria-current") === "true"]);

describe("StatusCounts", () => {
  beforeEach(() => history.replaceState(null, "", "/tables?q=ord&page=3"));

  it("leaves out what there is none of, and begins with all", () => {
    render(<Counts />);
    expect(screen.getByRole("navigation", { name: "Which tables are shown" })).toBeTruthy();
    expect(links()).toEqual([
      ["1,234 all", true],
      ["1,234 running", false],
    ]);
  });

  it("filters by a click, on the first page, and keeps the search", async () => {
    render(<Counts />);
    await userEvent.click(screen.getByRole("link", { name: /running/ }));
    expect(location.search).toBe("?q=ord&state=running");
    expect(links()).toEqual([
      ["1,234 all", false],
      ["1,234 running", true],
    ]);
  });

  it("shows what is chosen, although there is none of it any more", () => {
    history.replaceState(null, "", "/tables?state=failed");
    render(<Counts />);
    expect(links()[1]).toEqual(["0 failed", true]);
  });

  it("removes the filter by the first link", async () => {
    history.replaceState(null, "", "/tables?state=running");
    render(<Counts />);
    await userEvent.click(screen.getByRole("link", { name: /all/ }));
    expect(location.pathname + location.search).toBe("/tables");
  });
});
