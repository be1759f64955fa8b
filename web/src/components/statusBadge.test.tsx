import { render } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import type { Tone } from "../labels/tone";
import { StatusBadge } from "./statusBadge";

const TONES: Tone[] = ["good", "busy", "warn", "bad", "idle", "note", "unknown"];
const shape = (tone: Tone): string => render(<StatusBadge tone={tone}>word</StatusBadge>).container.querySelector("svg")?.outerHTML ?? "";

describe("StatusBadge", () => {
  it("shows the word in its tone", () => {
    const { container } = render(<StatusBadge tone="warn">late</StatusBadge>);
    expect(container.textContent).toBe("late");
    expect(container.firstElementChild?.classList.contains("tone-warn")).toBe(true);
  });

  it("has a shape of its own for each tone", () => expect(new Set(TONES.map(shape)).size).toBe(TONES.length));

  it("hides the shape from screen readers: the word says the same", () => {
    const { container } = render(<StatusBadge tone="bad">failed</StatusBadge>);
    expect(container.querySelector("svg")?.getAttribute("aria-hidden")).toBe("true");
  });
});
