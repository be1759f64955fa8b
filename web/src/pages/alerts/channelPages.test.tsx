import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { ReactNode } from "react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { AlertChannel } from "../../api/alerts";
import { keys } from "../../api/queries";
import { AskedAction } from "../../components/actions";
import { queryClient } from "../../stream/queryClient";
import { As } from "../../testing/caller";
import { NOW, subscription } from "../../testing/samples";
import { AlertChannelPage, NewAlertChannelPage } from "./channelPages";
import { AlertsPage } from "./page";

const channel = (changes: Partial<AlertChannel> = {}): AlertChannel => ({
  name: "ops",
  kind: "webhook",
  settings: { url: "https://ops.test/hook" },
  secrets_set: ["signing_key"],
  causes: [],
  subscriptions: [],
  repeat_seconds: 14400,
  delivered_at: null,
  last_error: null,
  created_at: NOW,
  updated_at: NOW,
  ...changes,
});
const request = vi.fn<(request: Request) => Promise<Response>>();
const sent = (call = 0): Request => request.mock.calls[call]?.[0] as Request;
const type = (label: string, text: string): Promise<void> => userEvent.type(screen.getByLabelText(label), text);
const press = (name: string): Promise<void> => userEvent.click(screen.getByRole("button", { name }));

function show(page: ReactNode, channels: AlertChannel[], role = "operator"): void {
  const known: [readonly unknown[], unknown][] = [
    [keys.alertChannels, channels],
    [keys.subscriptions, [subscription()]],
  ];
  render(
    <As role={role} known={known}>
      {page}
      <AskedAction place="/" />
    </As>,
  );
}

beforeEach(() => {
  request.mockReset();
  vi.stubGlobal("fetch", request);
  vi.spyOn(queryClient, "invalidateQueries").mockResolvedValue(undefined);
});

describe("a new alert channel", () => {
  it("is stored only if it is new, and shows a key that was made for it once", async () => {
    request.mockResolvedValueOnce(Response.json(channel(), { status: 201 }));
    show(<NewAlertChannelPage />, []);
    await type("Name of the alert channel", "ops");
    await type("Address", "https://ops.test/hook");
    await press("Make a key");
    await userEvent.click(screen.getByLabelText("a subscription has failed, or a table is parked"));
    await userEvent.click(screen.getByLabelText("copy"));
    await press("Create");
    const shown = (await screen.findByLabelText("Signing key of ops")) as HTMLInputElement;
    expect([sent().method, sent().headers.get("if-none-match")]).toEqual(["PUT", "*"]);
    expect(await sent().json()).toEqual({
      kind: "webhook",
      settings: { url: "https://ops.test/hook" },
      secrets: { signing_key: shown.value },
      causes: ["fault"],
      subscriptions: ["copy"],
      repeat_seconds: 14400,
    });
    await press("I have the key");
    expect(location.pathname).toBe("/alerts");
    expect(JSON.stringify([{ ...localStorage }, { ...sessionStorage }])).not.toContain(shown.value);
  });

  it("shows what the server says of its parts where they are", async () => {
    const errors = [{ pointer: "/settings/url", detail: "It names no host." }];
    request.mockResolvedValueOnce(Response.json({ code: "invalid_request", errors }, { status: 422 }));
    show(<NewAlertChannelPage />, []);
    await type("Name of the alert channel", "ops");
    await type("Address", "https://");
    await type("Signing key", "0123456789abcdef");
    await press("Create");
    const field = screen.getByLabelText("Address");
    await waitFor(() => expect(field.getAttribute("aria-invalid")).toBe("true"));
    expect(document.getElementById(field.getAttribute("aria-describedby") ?? "")?.textContent).toBe("It names no host.");
    await type("Address", "ops.test");
    expect(field.getAttribute("aria-invalid")).toBeNull();
  });

  it("takes no name that is given away", async () => {
    show(<NewAlertChannelPage />, [channel()]);
    await type("Name of the alert channel", "ops");
    expect(screen.getByText("An alert channel with this name already exists.")).toBeTruthy();
    expect(screen.getByRole("button", { name: "Create" })).toHaveProperty("disabled", true);
  });
});

describe("a present alert channel", () => {
  it("is changed without its secret", async () => {
    request.mockResolvedValueOnce(Response.json(channel()));
    show(<AlertChannelPage name="ops" />, [channel()]);
    await type("Address", "/b");
    await press("Save");
    await waitFor(() => expect(location.pathname).toBe("/alerts"));
    expect(sent().headers.get("if-none-match")).toBeNull();
    expect(await sent().json()).toMatchObject({ settings: { url: "https://ops.test/hook/b" }, secrets: {} });
  });

  it("of a kind that this console does not know is left as it is", () => {
    show(<AlertChannelPage name="ops" />, [channel({ kind: "pager" as "webhook" })]);
    expect(screen.queryByRole("button")).toBeNull();
  });
});

describe("the list of alert channels", () => {
  it("says how the newest attempt ended, and what causes are", () => {
    const failing = channel({ name: "b", last_error: "The answer was 403.", causes: ["fault", "slot_risk"], subscriptions: ["copy"] });
    show(<AlertsPage />, [channel({ delivered_at: NOW }), failing]);
    const [good, bad] = screen.getAllByRole("listitem").map((item) => item.textContent ?? "");
    expect(good).toMatch(/there is any cause.*Last delivered/);
    expect(bad).toMatch(/table is parked; when the source retains too much log; only for copy.*attempt failed: The answer was 403\./);
    expect(bad).toContain("Nothing was delivered yet.");
  });

  it("sends a test notice and shows its result", async () => {
    request.mockResolvedValueOnce(Response.json({ delivered: false, detail: "The answer was 500." }));
    show(<AlertsPage />, [channel()]);
    await press("Send a test notice: ops");
    expect(await screen.findByText("The test notice was not delivered: The answer was 500.")).toBeTruthy();
    expect(sent().url).toMatch(/\/api\/v1\/alert-channels\/ops\/test$/);
  });

  it("deletes after the name was typed", async () => {
    request.mockResolvedValueOnce(new Response(null, { status: 204 }));
    show(<AlertsPage />, [channel()]);
    await press("Delete ops");
    const [, confirm] = screen.getAllByRole("button", { name: /^Delete/ });
    expect(confirm).toHaveProperty("disabled", true);
    await type("Type ops to confirm", "ops");
    await press("Delete");
    await waitFor(() => expect(sent().method).toBe("DELETE"));
  });

  it("shows a viewer the channels, and no way to change them", () => {
    show(<AlertsPage />, [channel()], "viewer");
    expect(screen.getByRole("heading", { name: "ops" })).toBeTruthy();
    expect([...screen.queryAllByRole("button"), ...screen.queryAllByRole("link")]).toEqual([]);
  });
});
