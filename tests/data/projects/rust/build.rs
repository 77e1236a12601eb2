use std::{env, process::Command};

fn run(program: &str, words: &[&str]) {
    let status = Command::new(program).args(words).status().expect(program);
    assert!(status.success(), "{program} failed");
}

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    let nvcc = env::var("NVCC").unwrap_or("nvcc".into());
    let (object, library) = (format!("{out}/rows.o"), format!("{out}/librows.a"));
    run(&nvcc, &["-O3", "-Xcompiler", "-fPIC", "-c", "cuda/rows.cu", "-o", &object]);
    run("ar", &["crs", &library, &object]);
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static=rows");
    if let Ok(cuda) = env::var("CUDA_HOME") {
        println!("cargo:rustc-link-search=native={cuda}/lib64");
    }
    println!("cargo:rustc-link-lib=dylib=cudart");
    println!("cargo:rustc-link-lib=dylib=stdc++");
    println!("cargo:rerun-if-changed=cuda/rows.cu");
}
