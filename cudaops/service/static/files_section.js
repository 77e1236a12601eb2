// What the job left, to be taken away.

import { artefactPath, request } from "./api.js";
import { fill, h, table } from "./dom.js";
import { bytes } from "./format.js";
import { problemBox } from "./problem_box.js";
import { token } from "./token.js";

export function filesSection() {
  const place = h("div");
  const element = h("section", { class: "card", "aria-labelledby": "files-title", hidden: true },
    h("h2", { id: "files-title" }, "Files"), place);
  return {
    element,
    update(job) {
      element.hidden = job.artefacts.length === 0;
      const trouble = h("div");
      const rows = job.artefacts.map((one) =>
        h("tr", {}, h("th", { scope: "row" }, link(job.id, one, trouble)),
          h("td", { class: "num" }, bytes(one.size_bytes)),
          h("td", {}, h("code", {}, one.sha256.slice(0, 16)))));
      const heads = ["Name", { num: "Size" }, "SHA-256 begins"];
      fill(place, trouble, table("Files of the job", heads, rows, { class: "artefacts" }).box);
    },
  };
}

/** A plain link; with a token it is fetched, since a link cannot send one. */
function link(id, one, trouble) {
  const filename = one.name.split("/").join("-");
  const path = artefactPath(id, one.name);
  return h("a", { href: path, download: filename, onclick: async (event) => {
    if (!token()) return;
    event.preventDefault();
    fill(trouble);
    try {
      save(await (await request(path)).blob(), filename);
    } catch (error) {
      fill(trouble, problemBox(error));
    }
  } }, one.name);
}

function save(blob, filename) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: filename }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
