import { render } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { UsageBar } from "./usageBar";

function bar(share: number, warnAt = 0.5) {
  const { container } = render(<UsageBar share={share} warnAt={warnAt} />);
  const number = (selector: string, name: string): number => Number(container.querySelector(selector)?.getAttribute(name));
  return {
    text: container.textContent?.replaceAll("\u00a0", " "),
    filled: number("rect:not([class])", "width") / number(".track", "width"),
    limit: number(".limit", "x") / number(".track", "width"),
    over: container.querySelector("svg.over") !== null,
  };
}

describe("UsageBar", () => {
  it.each([
    [0, "0 %", 0],
    [0.25, "25 %", 0.25],
    [1, "100 %", 1],
  ])("shows %d as a number and a length", (share, text, filled) => expect(bar(share)).toMatchObject({ text, filled }));

  it("never fills more than the whole, but shows the number", () => expect(bar(1.5)).toMatchObject({ text: "150 %", filled: 1 }));
  it("never fills less than nothing", () => expect(bar(-0.1).filled).toBe(0));
  it("marks where it becomes a risk", () => expect(bar(0.1, 0.75).limit).toBe(0.75));

  it.each([
    [0.49, false],
    [0.5, true],
    [0.9, true],
  ])("at %d of a limit of one half it is a risk: %s", (share, over) => expect(bar(share).over).toBe(over));
});
