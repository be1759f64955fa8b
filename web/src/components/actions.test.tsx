import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Action } from "../actions";
import { Problem } from "../api/problem";
import { queryClient } from "../stream/queryClient";
import { As } from "../testing/caller";
import { ActionButtons, AskedAction } from "./actions";
import { Announcements } from "./announcements";

const action = (changes: Partial<Action> = {}): Action => ({
  verb: "Pause",
  title: "Pause copy?",
  does: ["No changes are applied."],
  name: "copy",
  run: vi.fn(() => Promise.resolve()),
  done: "copy: a pause was requested.",
  ...changes,
});

const tree = (actions: Action[], place = "/", role = "admin") => (
  <As role={role}>
    <ActionButtons actions={actions} />
    <AskedAction place={place} />
    <Announcements place={place} />
  </As>
);
const press = (name: string): Promise<void> => userEvent.click(screen.getByRole("button", { name }));

beforeEach(() => {
  vi.spyOn(queryClient, "invalidateQueries").mockResolvedValue(undefined);
});

describe("actions", () => {
  it("asks first, with the safe button focused", async () => {
    const given = action();
    render(tree([given]));
    await press("Pause copy");
    expect(screen.getByRole("dialog", { name: "Pause copy?" }).textContent).toContain("No changes are applied.");
    expect(document.activeElement?.textContent).toBe("Cancel");
    expect(given.run).not.toHaveBeenCalled();
  });

  it("does nothing when it is cancelled", async () => {
    const given = action();
    render(tree([given]));
    await press("Pause copy");
    await press("Cancel");
    expect(screen.queryByRole("dialog")).toBeNull();
    expect(given.run).not.toHaveBeenCalled();
    expect(document.activeElement?.textContent).toBe("Pause");
  });

  it("runs when it is confirmed, and announces it", async () => {
    const given = action();
    render(tree([given]));
    await press("Pause copy");
    await press("Pause");
    expect(given.run).toHaveBeenCalledWith(false);
    await waitFor(() => expect(screen.getByRole("status").textContent).toContain("copy: a pause was requested."));
    expect(screen.queryByRole("dialog")).toBeNull();
    expect(queryClient.invalidateQueries).toHaveBeenCalled();
  });

  it("stays open with the problem when the server refuses", async () => {
    render(tree([action({ run: () => Promise.reject(Problem.of(new Response(null, { status: 409 }), { title: "It is busy" })) })]));
    await press("Pause copy");
    await press("Pause");
    await waitFor(() => expect(screen.getByRole("alert").textContent).toContain("It is busy"));
    expect(screen.getByRole("dialog")).toBeTruthy();
  });

  it("wants the name typed where something is lost", async () => {
    const given = action({ verb: "Delete", title: "Delete copy?", loses: "All is lost.", serious: true });
    render(tree([given]));
    await press("Delete copy");
    const confirm = screen.getByRole<HTMLButtonElement>("button", { name: "Delete" });
    expect(confirm.disabled).toBe(true);
    await userEvent.type(screen.getByLabelText("Type copy to confirm"), "cop");
    expect(confirm.disabled).toBe(true);
    await userEvent.type(screen.getByLabelText("Type copy to confirm"), "y{Enter}");
    await waitFor(() => expect(given.run).toHaveBeenCalledTimes(1));
  });

  it("wants it for the choice that loses something, and passes the choice on", async () => {
    const given = action({ choice: { label: "Drop the table, too", loses: "Its rows are lost." } });
    render(tree([given]));
    await press("Pause copy");
    expect(screen.queryByText("Its rows are lost.")).toBeNull();
    await userEvent.click(screen.getByLabelText("Drop the table, too"));
    await userEvent.type(screen.getByLabelText("Type copy to confirm"), "copy");
    await press("Pause");
    expect(given.run).toHaveBeenCalledWith(true);
  });

  it("takes the question away with the page", async () => {
    const given = [action()];
    const { rerender } = render(tree(given, "/a"));
    await press("Pause copy");
    rerender(tree(given, "/b"));
    expect(screen.queryByRole("dialog")).toBeNull();
  });

  it.each([
    ["viewer", []],
    ["operator", ["Pause"]],
    ["admin", ["Pause", "Install"]],
    ["auditor", []],
  ])("offers to a %s: %j", (role, verbs) => {
    render(tree([action(), action({ verb: "Install", role: "admin" })], "/", role));
    expect(screen.queryAllByRole("button").map((button) => button.textContent)).toEqual(verbs);
  });
});
