use std::env;

extern "C" {
    fn sum_of_rows(host: *const f32, sums: *mut f32, rows: i32, columns: i32) -> i32;
}

fn main() {
    let sizes: Vec<usize> = env::args().skip(1).map(|word| word.parse().unwrap()).collect();
    let (rows, columns) = (sizes[0], sizes[1]);
    let host: Vec<f32> = (0..rows * columns).map(|i| (i * 37 % 101) as f32 / 8.0).collect();
    let mut sums = vec![0.0f32; rows];
    let code = unsafe { sum_of_rows(host.as_ptr(), sums.as_mut_ptr(), rows as i32, columns as i32) };
    assert_eq!(code, 0);
    println!("rows {} sum {:.3}", rows, sums.iter().map(|&s| s as f64).sum::<f64>());
}
