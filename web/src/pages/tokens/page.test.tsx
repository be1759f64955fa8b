import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { keys } from "../../api/queries";
import type { Token } from "../../api/tokens";
import { AskedAction } from "../../components/actions";
import { settingsChange, settingsOf, settingsText } from "../../labels/tokens";
import { queryClient } from "../../stream/queryClient";
import { As } from "../../testing/caller";
import { NOW } from "../../testing/samples";
import { TokensPage } from "./page";

const token = (changes: Partial<Token> = {}): Token => ({
  id: "t1",
  name: "bi",
  role: "viewer",
  settings: {},
  created_at: NOW,
  ...changes,
});
const request = vi.fn<(request: Request) => Promise<Response>>();
const sent = (call = 0): Request => request.mock.calls[call]?.[0] as Request;
const type = (label: string, text: string): Promise<void> => userEvent.type(screen.getByLabelText(label), text);
const press = (name: string): Promise<void> => userEvent.click(screen.getByRole("button", { name }));

function show(tokens: Token[], role = "admin"): void {
  render(
    <As role={role} known={[[keys.tokens, tokens]]}>
      <TokensPage />
      <AskedAction place="/" />
    </As>,
  );
}

beforeEach(() => {
  request.mockReset();
  vi.stubGlobal("fetch", request);
  vi.spyOn(queryClient, "invalidateQueries").mockResolvedValue(undefined);
});

describe("tokens", () => {
  it("are made with settings, and shown once", async () => {
    request.mockResolvedValueOnce(Response.json({ ...token(), token: "pst_x" }, { status: 201 }));
    show([]);
    await type("Name of the token", "bi");
    await type("Settings of its SQL sessions", "penstock.freshness = latest{enter}penstock.timeout_ms=2s");
    await press("Create");
    expect(((await screen.findByLabelText("Text of bi")) as HTMLInputElement).value).toBe("pst_x");
    expect(await sent().json()).toEqual({
      name: "bi",
      role: "viewer",
      settings: { "penstock.freshness": "latest", "penstock.timeout_ms": "2s" },
    });
    await press("I have the token");
    expect(screen.queryByLabelText("Text of bi")).toBeNull();
  });

  it("get changed settings, of which those that are gone are removed", async () => {
    request.mockResolvedValueOnce(Response.json(token()));
    show([token({ settings: { "penstock.freshness": "latest", "my.own": "a=b" } })]);
    expect(screen.getByText("penstock.freshness = latest, my.own = a=b")).not.toBeNull();
    await press("Change bi");
    const field = screen.getAllByLabelText("Settings of its SQL sessions")[0] as HTMLTextAreaElement;
    await userEvent.clear(field);
    await userEvent.type(field, "my.own = c");
    await press("Save");
    expect([sent().method, new URL(sent().url).pathname]).toEqual(["PATCH", "/api/v1/tokens/t1"]);
    expect(await sent().json()).toEqual({ settings: { "penstock.freshness": null, "my.own": "c" } });
  });

  it("show what the server says of a setting", async () => {
    const problem = {
      code: "invalid_request",
      detail: "no",
      remedy: "x",
      errors: [{ pointer: "/settings/a.b", detail: "there is no such" }],
    };
    request.mockResolvedValueOnce(Response.json(problem, { status: 422 }));
    show([token()]);
    await press("Change bi");
    await userEvent.type(screen.getAllByLabelText("Settings of its SQL sessions")[0] as HTMLElement, "a.b = 1");
    await press("Save");
    expect(await screen.findByText("There is no such")).not.toBeNull();
  });

  it("are read by administrators only", () => {
    show([token()], "operator");
    expect(screen.queryByText("bi")).toBeNull();
    expect(screen.getByText(/needs the role admin/)).not.toBeNull();
  });

  it("of engines have no settings", () => {
    show([token({ role: "engine" })]);
    expect(screen.queryByRole("button", { name: "Change bi" })).toBeNull();
  });
});

describe("typed settings", () => {
  it("are one on each line", () => {
    expect(settingsOf(" a.b = 1 \n\n c=\nd = x = y")).toEqual({ settings: { "a.b": "1", c: "", d: "x = y" }, wrong: null });
    expect(settingsOf(settingsText({ "a.b": "1", c: "" })).settings).toEqual({ "a.b": "1", c: "" });
  });

  it.each(["latest", "= 1", "a = 1\na = 2"])("are wrong: %s", (text) => {
    expect(settingsOf(text).wrong).not.toBeNull();
  });

  it("change by what differs", () => {
    expect(settingsChange({ a: "1", b: "2", c: "3" }, { a: "1", b: "4", d: "5" })).toEqual({ c: null, b: "4", d: "5" });
  });
});
