import { act, render, screen } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { link } from "../stream/connection";
import { readAt } from "../stream/queryClient";
import { As } from "../testing/caller";
import { StreamStatus } from "./streamStatus";

const show = (role = "admin") =>
  render(
    <As role={role}>
      <StreamStatus />
    </As>,
  );

describe("StreamStatus", () => {
  beforeEach(() => {
    readAt.set(null);
    link.set("connecting");
  });

  it("follows the state of the stream", () => {
    show();
    expect(screen.getByRole("status").textContent).toBe("connecting");
    act(() => link.set("live"));
    expect(screen.getByRole("status").textContent).toBe("live");
    act(() => link.set("reconnecting"));
    expect(screen.getByRole("status").textContent).toBe("reconnecting");
  });

  it("shows when something was read last, without announcing it", () => {
    const { container } = show();
    expect(container.textContent).toBe("connecting");
    act(() => readAt.set(Date.parse("2026-05-04T10:00:00Z")));
    expect(container.textContent).toBe("connectinglast updated 15:30:00");
    expect(screen.getByRole("status").textContent).toBe("connecting");
  });

  it("says that a token of a viewer changes nothing", () => {
    show("viewer");
    expect(screen.getByText("read-only")).toBeTruthy();
  });
});
