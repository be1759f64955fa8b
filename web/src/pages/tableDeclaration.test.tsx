import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { As } from "../testing/caller";
import { table } from "../testing/samples";
import { Declaration } from "./table";

const shown = (name: string): string | undefined => screen.queryByText(name)?.parentElement?.textContent ?? undefined;

describe("the declaration of a table", () => {
  it("has the key and the stamp that the subscription's capture names", () => {
    const detection = { key: ["day", "shop"], method: "timestamp", stamp_column: "changed", sweep_every: 12 };
    render(
      <As role="viewer">
        <Declaration table={table({ key: [] })} detection={detection} />
      </As>,
    );
    expect(shown("Key")).toContain("day, shop");
    expect(shown("Stamp column")).toContain("changed");
    expect(shown("How its changes are found")).toContain("timestamp");
  });

  it("has the key of its source where the capture says nothing", () => {
    render(
      <As role="viewer">
        <Declaration table={table({ key: [] })} detection={undefined} />
      </As>,
    );
    expect(shown("Key")).toContain("the source's own");
    expect(shown("Stamp column")).toBeUndefined();
  });
});
