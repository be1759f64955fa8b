import { describe, expect, it } from "vitest";
import { plainRemedy } from "./remedies";

describe("plainRemedy", () => {
  it("leaves what names no call", () => expect(plainRemedy("Grant it.")).toEqual({ words: "Grant it.", calls: [] }));

  it.each([
    ["POST /subscriptions/{name}/tables/{table_id}/retries", "“Try again”"],
    ["POST /subscriptions/{name}/tables/{table_id}/reloads", "“Reload”"],
    ["POST /subscriptions/{name}/tables/{table_id}/approvals", "“Approve”"],
  ])("puts a table's button in place of %s", (call, button) => {
    expect(plainRemedy(`Then ${call}.`, "table")).toEqual({ words: `Then ${button}.`, calls: [call] });
  });

  it("names the page of a button that is elsewhere", () => {
    expect(plainRemedy("POST /subscriptions/{name}/reloads starts over.", "table").words).toBe(
      "“Reload all” on the subscription's page starts over.",
    );
  });

  it("takes the longer of two texts with the same beginning", () => {
    const remedy = "PUT /connections/{name}/ddl-capture, as a superuser of the source, or DELETE it.";
    expect(plainRemedy(remedy, "connection")).toEqual({
      words: "Use “Install”, as a superuser of the source, or “Remove”.",
      calls: ["PUT /connections/{name}/ddl-capture", "DELETE /connections/{name}/ddl-capture"],
    });
  });

  it("has the name of the button that is shown with it", () => {
    expect(plainRemedy("Then set desired_state to running.", "table", ["subscription.resume"]).words).toBe("Then use “Resume”.");
    expect(plainRemedy("Then set desired_state to running.", "table").words).toBe("Then use “Try again” on the subscription's page.");
  });

  it("replaces a call that is named twice, and lists it once", () => {
    const call = "POST /subscriptions/{name}/reloads";
    expect(plainRemedy(`${call}, or ${call}`, "subscription")).toEqual({ words: "“Reload all”, or “Reload all”", calls: [call] });
  });
});
