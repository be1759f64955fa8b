import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { event } from "../testing/samples";
import { EventList } from "./events";

const items = (): (string | null)[] => screen.getAllByRole("listitem").map((item) => item.textContent);

describe("EventList", () => {
  it("says that nothing has happened yet", () => {
    render(<EventList events={[]} here="subscription" />);
    expect(screen.getByText("Nothing has happened yet.")).toBeTruthy();
  });

  it("keeps the order of the events", () => {
    render(<EventList events={[event({ id: "2", detail: "Second." }), event({ id: "1", detail: "First." })]} here="subscription" />);
    expect(items()).toEqual(["2026-05-04 15:30:00infoSecond.", "2026-05-04 15:30:00infoFirst."]);
  });

  it("names the subject where the sentence does not", () => {
    const subject = "public.orders";
    render(
      <EventList
        events={[event({ id: "2", subject, detail: "It parked." }), event({ id: "1", subject, detail: "public.orders is live." })]}
        here="table"
      />,
    );
    expect(items()[0]).toContain("public.orders: It parked.");
    expect(items()[1]).not.toContain("public.orders: ");
  });

  it("shows the remedy, and a severity of a newer server as unknown", () => {
    const { container } = render(<EventList events={[event({ severity: "fatal" as "error", remedy: "Do this." })]} here="table" />);
    expect(screen.getByText("Do this.")).toBeTruthy();
    expect(container.querySelector(".tone-unknown")?.textContent).toBe("fatal");
  });
});
