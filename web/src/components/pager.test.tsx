import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import { Pager } from "./pager";

const show = (page: number, total = 2345, onPage = vi.fn()) => {
  render(<Pager page={page} size={1000} total={total} noun="rows" onPage={onPage} />);
  return onPage;
};
const button = (name: string): HTMLButtonElement => screen.getByRole("button", { name });

describe("Pager", () => {
  it.each([0, 1, 1000])("is not there for %d items", (total) => {
    show(0, total);
    expect(screen.queryByRole("navigation")).toBeNull();
  });

  it.each([
    [0, "1 to 1,000 of 2,345 rows", true, false],
    [1, "1,001 to 2,000 of 2,345 rows", false, false],
    [2, "2,001 to 2,345 of 2,345 rows", false, true],
  ])("on page %d shows “%s”", (page, text, first, last) => {
    show(page);
    expect(screen.getByRole("status").textContent).toBe(text);
    expect([button("Previous").disabled, button("Next").disabled]).toEqual([first, last]);
  });

  it("leads to the pages before and after", async () => {
    const onPage = show(1);
    await userEvent.click(button("Previous"));
    await userEvent.click(button("Next"));
    expect(onPage.mock.calls).toEqual([[0], [2]]);
  });
});
