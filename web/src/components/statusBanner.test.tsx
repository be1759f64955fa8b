import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { StatusBanner } from "./statusBanner";

describe("StatusBanner", () => {
  it("shows the word, the reason and what is put into it", () => {
    const { container } = render(
      <StatusBanner tone="bad" word="parked" why="It has no key." since="since noon">
        <button type="button">Try again</button>
      </StatusBanner>,
    );
    expect(container.firstElementChild?.classList.contains("tone-bad")).toBe(true);
    expect(container.textContent).toBe("parkedsince noonIt has no key.Try again");
  });

  it("shows the remedy with the buttons of its page", () => {
    const call = "POST /subscriptions/{name}/tables/{table_id}/reloads";
    render(<StatusBanner tone="bad" word="parked" why="" remedy={`Then ${call}.`} here="table" />);
    expect(screen.getByText("Then “Reload”.")).toBeTruthy();
    expect(screen.getByText(call).tagName).toBe("CODE");
  });

  it("has no remedy where there is none", () => {
    const { container } = render(<StatusBanner tone="good" word="live" why="It follows the source." remedy={null} />);
    expect(container.textContent).toBe("liveIt follows the source.");
  });
});
