import { render } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { LagCell } from "./lagCell";

type Lag = Parameters<typeof LagCell>[0]["lag"];
const text = (lag: Partial<Lag>): string | null =>
  render(<LagCell lag={{ seconds: null, bytes: null, ...lag } as Lag} />).container.textContent?.replaceAll("\u00a0", " ") ?? null;

describe("LagCell", () => {
  it("shows seconds and bytes", () => expect(text({ seconds: 1.25, bytes: 2048, tables: 3 })).toBe("1.3 s2 KiB"));
  it("shows seconds alone where the bytes are unknown", () => expect(text({ seconds: 0, tables: 3 })).toBe("0.0 s"));
  it("shows that the lag is unknown, not that there is none", () => expect(text({})).toBe("–"));
  it("says that no table is live", () => expect(text({ tables: 0 })).toBe("–no table is live"));
  it("shows no bytes of lag as such", () => expect(text({ seconds: 0, bytes: 0, tables: 1 })).toBe("0.0 s0 B"));
});
