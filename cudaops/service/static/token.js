// The bearer token: in this tab's session storage, and in no other place.

const KEY = "cudaops-token";
let kept = "";

export function token() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return kept;
  }
}

/** @param {string} value empty: forget it */
function keep(value) {
  kept = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage it holds until the page is left.
  }
}

const dialog = () => /** @type {HTMLDialogElement} */ (document.getElementById("token-dialog"));

/** @type {Promise<boolean> | null} */
let asking = null;

/**
 * Ask for a token; requests that are refused meanwhile wait for the same answer.
 * @param {string} why one line
 * @returns {Promise<boolean>} whether there is a token to try
 */
export function askForToken(why) {
  asking ??= ask(why).finally(() => {
    asking = null;
  });
  return asking;
}

/** @param {string} why */
function ask(why) {
  const box = dialog();
  const field = /** @type {HTMLInputElement} */ (document.getElementById("token-field"));
  document.getElementById("token-why").textContent = why;
  document.getElementById("token-forget").hidden = !token();
  const before = token();
  field.value = "";
  box.returnValue = "cancel";
  box.showModal();
  field.focus();
  return new Promise((resolve) => {
    box.addEventListener(
      "close",
      () => {
        if (box.returnValue === "use") keep(field.value.trim());
        if (box.returnValue === "forget") keep("");
        resolve(box.returnValue === "use" && token() !== "");
        field.value = "";
        if (token() !== before) document.dispatchEvent(new Event("token-changed"));
      },
      { once: true },
    );
  });
}
